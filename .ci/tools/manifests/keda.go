package main

import (
	autoscaling "k8s.io/api/autoscaling/v2"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scaledObject is a ScaledObject of KEDA, the autoscaler of the workers. It has those fields of the
// CRD (keda.sh/v1alpha1, KEDA 2.18) that the manifests may use. KEDA's own Go type is not used,
// because its package depends on a controller's whole runtime.
type scaledObject struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		ScaleTargetRef struct {
			Name                   string `json:"name"`
			APIVersion             string `json:"apiVersion"`
			Kind                   string `json:"kind"`
			EnvSourceContainerName string `json:"envSourceContainerName"`
		} `json:"scaleTargetRef"`
		PollingInterval  *int32 `json:"pollingInterval"`
		CooldownPeriod   *int32 `json:"cooldownPeriod"`
		IdleReplicaCount *int32 `json:"idleReplicaCount"`
		MinReplicaCount  *int32 `json:"minReplicaCount"`
		MaxReplicaCount  *int32 `json:"maxReplicaCount"`
		Fallback         *struct {
			FailureThreshold int32  `json:"failureThreshold"`
			Replicas         int32  `json:"replicas"`
			Behavior         string `json:"behavior"`
		} `json:"fallback"`
		Advanced *struct {
			RestoreToOriginalReplicaCount bool `json:"restoreToOriginalReplicaCount"`
			HorizontalPodAutoscalerConfig *struct {
				Name     string                                       `json:"name"`
				Behavior *autoscaling.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type              string                       `json:"type"`
			Name              string                       `json:"name"`
			UseCachedMetrics  bool                         `json:"useCachedMetrics"`
			MetricType        autoscaling.MetricTargetType `json:"metricType"`
			Metadata          map[string]string            `json:"metadata"`
			AuthenticationRef *struct {
				Name string `json:"name"`
				Kind string `json:"kind"`
			} `json:"authenticationRef"`
		} `json:"triggers"`
	} `json:"spec"`
}

// kustomization is a Kustomization or a Component of kustomize, with the fields that the manifests
// may use.
type kustomization struct {
	meta.TypeMeta      `json:",inline"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name     string   `json:"name"`
		Behavior string   `json:"behavior"`
		Literals []string `json:"literals"`
	} `json:"configMapGenerator"`
	Labels []struct {
		Pairs            map[string]string `json:"pairs"`
		IncludeTemplates bool              `json:"includeTemplates"`
		IncludeSelectors bool              `json:"includeSelectors"`
	} `json:"labels"`
}
