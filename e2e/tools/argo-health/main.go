// Command argo-health prints the verdict of Argo CD's built-in health checks on each Kubernetes
// object of a JSON array. Health checks in Lua, which Argo CD has for custom resources, do not run.
//
//	argo-health < OBJECTS.json > VERDICTS.json
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// verdict is the health of one object. A kind without a health check has an empty verdict; Argo CD
// counts its objects as healthy. A failed computation has only an error.
type verdict struct {
	Status  string `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "argo-health:", err)
		os.Exit(1)
	}
}

func run() error {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return fmt.Errorf("read the objects: %w", err)
	}
	verdicts := make([]verdict, 0, len(objects))
	for _, object := range objects {
		verdicts = append(verdicts, judge(object))
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}

// judge decodes the object as a client of the API server does, so that numbers are int64.
func judge(object json.RawMessage) verdict {
	decoded := &unstructured.Unstructured{}
	if err := decoded.UnmarshalJSON(object); err != nil {
		return verdict{Error: err.Error()}
	}
	result, err := health.GetResourceHealth(decoded, nil)
	if err != nil {
		return verdict{Error: err.Error()}
	}
	if result == nil {
		return verdict{}
	}
	return verdict{Status: string(result.Status), Message: result.Message}
}
