// Command kms-plugin is a KMS plugin for tests. It implements sigstore's KMS plugin protocol with
// the handler of sigstore. The keys are files in PKCS#8 PEM format.
package main

import (
	"context"
	"crypto"
	"errors"
	"os"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"
)

type files struct{ signature.SignerVerifier }

func (files) DefaultAlgorithm() string      { return "ecdsa-p256" }
func (files) SupportedAlgorithms() []string { return []string{"ecdsa-p256"} }

func (files) CreateKey(context.Context, string) (crypto.PublicKey, error) {
	return nil, errors.New("keys are made elsewhere")
}

func (files) CryptoSigner(context.Context, func(error)) (crypto.Signer, crypto.SignerOpts, error) {
	return nil, nil, errors.New("not a part of the protocol")
}

func open(path string, hash crypto.Hash) (files, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return files{}, err
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(pem, cryptoutils.SkipPassword)
	if err != nil {
		return files{}, err
	}
	signer, err := signature.LoadSignerVerifier(key, hash)
	return files{signer}, err
}

func run() error {
	arguments, err := handler.GetPluginArgs(os.Args)
	if err != nil {
		return err
	}
	key, err := open(arguments.InitOptions.KeyResourceID, arguments.InitOptions.HashFunc)
	if err != nil {
		return err
	}
	_, err = handler.Dispatch(os.Stdout, os.Stdin, arguments, key)
	return err
}

func main() {
	if err := run(); err != nil {
		_ = handler.WriteErrorResponse(os.Stdout, err)
		os.Exit(1)
	}
}
