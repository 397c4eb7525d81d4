// Go-containerregistry's registry with the referrers API, which its `crane registry serve` leaves off.
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
