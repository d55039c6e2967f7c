// Command manifests checks the Kubernetes manifests in a folder and in its subfolders. Each
// document must decode strictly into the Go type of its API: no unknown field, no field twice, no
// value of a wrong type.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manifests FOLDER")
		os.Exit(2)
	}
	n, err := checkFolder(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("manifests: %d documents are valid\n", n)
}

// checkFolder checks all documents in a folder and in its subfolders, one level deep. It returns
// the number of documents, and an error for each invalid one.
func checkFolder(folder string) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	below, belowErr := filepath.Glob(filepath.Join(folder, "*", "*.yaml"))
	if err = errors.Join(err, belowErr); err != nil {
		return 0, err
	}
	files = append(files, below...)
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for _, document := range documents(text) {
			n++
			if err := check(document); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
			}
		}
	}
	if n == 0 {
		errs = append(errs, fmt.Errorf("%s has no manifests", folder))
	}
	return n, errors.Join(errs...)
}

// separator matches the line between two documents of a file.
var separator = regexp.MustCompile(`(?m)^---\s*$`)

// documents splits a file into its documents. It omits documents that hold only comments, and keeps
// malformed ones, which check refuses.
func documents(text []byte) (all [][]byte) {
	for _, part := range separator.Split(string(text), -1) {
		var content any
		if err := yaml.Unmarshal([]byte(part), &content); err != nil || content != nil {
			all = append(all, []byte(part))
		}
	}
	return all
}

// check decodes a document strictly into the type of its API. It refuses kinds that types lacks.
func check(document []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	into, ok := types()[head.APIVersion+" "+head.Kind]
	if !ok {
		return fmt.Errorf("unknown kind %s of %s", head.Kind, head.APIVersion)
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return fmt.Errorf("%s: %w", head.Kind, err)
	}
	strict, err := json.UnmarshalStrict(text, into) // distinguishes upper and lower case, as the API server does
	if err = errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%s: %w", head.Kind, err)
	}
	return nil
}

// types returns a pointer to an empty value of each known type, by API version and kind.
func types() map[string]any {
	return map[string]any{
		"v1 Service":                                    &core.Service{},
		"v1 ConfigMap":                                  &core.ConfigMap{},
		"apps/v1 Deployment":                            &apps.Deployment{},
		"batch/v1 Job":                                  &batch.Job{},
		"batch/v1 CronJob":                              &batch.CronJob{},
		"policy/v1 PodDisruptionBudget":                 &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy":            &networking.NetworkPolicy{},
		"autoscaling/v2 HorizontalPodAutoscaler":        &autoscaling.HorizontalPodAutoscaler{},
		"keda.sh/v1alpha1 ScaledObject":                 &scaledObject{},
		"kustomize.config.k8s.io/v1alpha1 Component":    &kustomization{},
		"kustomize.config.k8s.io/v1beta1 Kustomization": &kustomization{},
	}
}
