// Command noop-webhook admits every request. The benchmark of admission compares bundle-webhook with this server,
// which reads a review and returns the uid of the review without a decision.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
)

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID string `json:"uid"`
	// The object is decoded and not used, because every real webhook must decode it.
	Object json.RawMessage `json:"object"`
}

type response struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
}

func admit(w http.ResponseWriter, r *http.Request) {
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
	answer := review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: &response{UID: asked.Request.UID, Allowed: true}}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	certificate := flag.String("cert", "", "PEM file of the serving certificate")
	key := flag.String("key", "", "PEM file of its key")
	flag.Parse()
	log.Fatal(http.ListenAndServeTLS(*listen, *certificate, *key, http.HandlerFunc(admit)))
}
