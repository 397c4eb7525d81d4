// Command helm-versions prints, for each pair of a version constraint and a Kubernetes version,
// whether Helm renders a chart with that kubeVersion for that version.
//
//	helm-versions < QUESTION.json > VERDICTS.json
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

// question holds the constraints of charts and the versions of API servers.
type question struct {
	Constraints []string `json:"constraints"`
	Versions    []string `json:"versions"`
}

// verdict is the result for one constraint. Helm renders a chart with an invalid constraint for no
// version.
type verdict struct {
	Error    string `json:"error,omitempty"`
	Admitted []bool `json:"admitted,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "helm-versions:", err)
		os.Exit(1)
	}
}

func run() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return fmt.Errorf("read the constraints: %w", err)
	}
	verdicts := make([]verdict, 0, len(asked.Constraints))
	for _, constraint := range asked.Constraints {
		verdicts = append(verdicts, judge(constraint, asked.Versions))
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}

func judge(constraint string, versions []string) verdict {
	if _, err := semver.NewConstraint(constraint); err != nil {
		return verdict{Error: err.Error()}
	}
	admitted := make([]bool, 0, len(versions))
	for _, version := range versions {
		admitted = append(admitted, util.IsCompatibleRange(constraint, version))
	}
	return verdict{Admitted: admitted}
}
