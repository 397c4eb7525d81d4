// Command noop-webhook admits every request. Admission benchmarks compare bundle-webhook with this server, which only
// decodes the review. At the path /patch, the response also contains a JSON patch that adds an annotation of the given
// size.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"strings"
)

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID string `json:"uid"`
	// The server does not use the object, but decodes it, because every real webhook must decode the object.
	Object json.RawMessage `json:"object"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	Patch     []byte `json:"patch,omitempty"`
}

// annotations returns a JSON patch that adds one annotation with a value of size bytes.
func annotations(size int) []byte {
	value := map[string]string{"noop.webhook.example.com/stamp": strings.Repeat("a", size)}
	patch, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": value}})
	if err != nil {
		log.Fatal(err)
	}
	return patch
}

// admit returns a handler that admits each request. The responses contain patch if patch is not empty.
func admit(patch []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { answer(w, r, patch) }
}

func answer(w http.ResponseWriter, r *http.Request, patch []byte) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil || asked.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	admitted := &response{UID: asked.Request.UID, Allowed: true, Patch: patch}
	if len(patch) > 0 {
		admitted.PatchType = "JSONPatch"
	}
	answer := review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: admitted}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	certificate := flag.String("cert", "", "PEM file of the serving certificate")
	key := flag.String("key", "", "PEM file of its key")
	size := flag.Int("patch", 1024, "bytes of the annotation that /patch adds")
	flag.Parse()
	http.HandleFunc("/", admit(nil))
	http.HandleFunc("/patch", admit(annotations(*size)))
	log.Fatal(http.ListenAndServeTLS(*listen, *certificate, *key, nil))
}
