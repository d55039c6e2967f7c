package kubernetes

import (
	_ "embed" // the manifest
	"errors"
	"time"

	"go.yaml.in/yaml/v4"
)

//go:embed api.yaml
var apiManifest []byte

// PreStop returns the time from the decision to end a pod of the API until its SIGTERM. Meanwhile
// the pod still gets new connections.
func PreStop() (time.Duration, error) {
	text, err := document(apiManifest, "Deployment")
	if err != nil {
		return 0, err
	}
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Lifecycle struct {
							PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		return 0, err
	}
	containers := deployment.Spec.Template.Spec.Containers
	if len(containers) != 1 || containers[0].Lifecycle.PreStop.Sleep.Seconds <= 0 {
		return 0, errors.New("the Deployment of the API needs one container, with a sleep as its preStop hook")
	}
	return time.Duration(containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second, nil
}
