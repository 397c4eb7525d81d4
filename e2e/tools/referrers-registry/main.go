// Command referrers-registry runs the registry of go-containerregistry with the referrers API,
// which `crane registry serve` does not enable.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	handler := registry.New(registry.WithReferrersSupport(true))
	log.Fatal(http.ListenAndServe(os.Args[1], handler))
}
