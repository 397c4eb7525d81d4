// Command kstatus-verdicts prints the verdict of kstatus on each Kubernetes object of a JSON array.
//
//	kstatus-verdicts < OBJECTS.json > VERDICTS.json
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// verdict is the result of kstatus for one object. A failed computation has only an error.
type verdict struct {
	Status  string `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus-verdicts:", err)
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
	result, err := status.Compute(decoded)
	if err != nil {
		return verdict{Error: err.Error()}
	}
	return verdict{Status: result.Status.String(), Message: result.Message}
}
