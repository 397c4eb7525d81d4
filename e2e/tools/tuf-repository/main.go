// Command tuf-repository writes one state of a TUF repository with go-tuf. Standard input contains
// the version, expiry, keys, threshold and signers of each role. A key is created when its name
// first occurs, so that a test can also sign a role with a key that the role does not list.
package main

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

type role struct {
	Version   int64
	Expires   time.Time
	Keys      []string
	Threshold int
	Signers   []string
}

type state struct {
	// Folder of the keys, and folder of the repository.
	Keys, Out                          string
	Root, Timestamp, Snapshot, Targets role
	// Paths of the target files by target name.
	Files map[string]string
}

func check[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func (s state) key(name string) ed25519.PrivateKey {
	path := filepath.Join(s.Keys, name+".seed")
	if seed, err := os.ReadFile(path); err == nil {
		return ed25519.NewKeyFromSeed(seed)
	}
	_, private, err := ed25519.GenerateKey(nil)
	check(0, err)
	check(0, os.WriteFile(path, private.Seed(), 0o600))
	return private
}

func write[T metadata.Roles](s state, meta *metadata.Metadata[T], by role, names ...string) {
	for _, name := range by.Signers {
		signer := check(signature.LoadSigner(s.key(name), crypto.Hash(0)))
		check(meta.Sign(signer))
	}
	for _, name := range names {
		check(0, meta.ToFile(filepath.Join(s.Out, name), true))
	}
}

func main() {
	var s state
	check(0, json.NewDecoder(os.Stdin).Decode(&s))
	check(0, os.MkdirAll(s.Keys, 0o700))
	check(0, os.MkdirAll(filepath.Join(s.Out, "targets"), 0o755))

	root := metadata.Root(s.Root.Expires)
	root.Signed.Version = s.Root.Version
	roles := map[string]role{"root": s.Root, "timestamp": s.Timestamp, "snapshot": s.Snapshot, "targets": s.Targets}
	for name, role := range roles {
		for _, key := range role.Keys {
			public := check(metadata.KeyFromPublicKey(s.key(key).Public()))
			check(0, root.Signed.AddKey(public, name))
		}
		root.Signed.Roles[name].Threshold = role.Threshold
	}
	write(s, root, s.Root, fmt.Sprintf("%d.root.json", s.Root.Version))

	targets := metadata.Targets(s.Targets.Expires)
	targets.Signed.Version = s.Targets.Version
	for name, path := range s.Files {
		content := check(os.ReadFile(path))
		info := check(metadata.TargetFile().FromBytes(name, content, "sha256"))
		targets.Signed.Targets[name] = info
		hash := sha256.Sum256(content)
		file := hex.EncodeToString(hash[:]) + "." + name
		check(0, os.WriteFile(filepath.Join(s.Out, "targets", file), content, 0o644))
	}
	write(s, targets, s.Targets, fmt.Sprintf("%d.targets.json", s.Targets.Version))

	snapshot := metadata.Snapshot(s.Snapshot.Expires)
	snapshot.Signed.Version = s.Snapshot.Version
	snapshot.Signed.Meta["targets.json"] = metadata.MetaFile(s.Targets.Version)
	write(s, snapshot, s.Snapshot, fmt.Sprintf("%d.snapshot.json", s.Snapshot.Version))

	timestamp := metadata.Timestamp(s.Timestamp.Expires)
	timestamp.Signed.Version = s.Timestamp.Version
	timestamp.Signed.Meta["snapshot.json"] = metadata.MetaFile(s.Snapshot.Version)
	write(s, timestamp, s.Timestamp, "timestamp.json")
}
