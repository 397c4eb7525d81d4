// Command flux-apply applies sets of manifests with the library that the controllers of Flux use. Benchmarks compare
// bundle-webhook with this program. A set is a folder with YAML files. Like Flux without `spec.wait`, the program does
// not wait until the objects are healthy.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig")
	parallelSets := flag.Int("parallel-sets", 4, "sets that are applied at the same time (--concurrent of Flux)")
	parallelObjects := flag.Int("parallel-objects", 4, "objects of a set that are compared at the same time (--concurrent-ssa of Flux)")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	if err := run(context.Background(), *kubeconfig, flag.Args(), *parallelSets, *parallelObjects); err != nil {
		log.Fatal(err)
	}
}

// run applies each folder in folders. A folder without YAML files contains one subfolder for each set.
func run(ctx context.Context, kubeconfig string, folders []string, parallelSets, parallelObjects int) error {
	manager, err := newManager(kubeconfig)
	if err != nil {
		return err
	}
	manager.SetConcurrency(parallelObjects)
	sets, err := setsIn(folders)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSets)
	for _, set := range sets {
		group.Go(func() error { return applySet(ctx, manager, set) })
	}
	return group.Wait()
}

func newManager(kubeconfig string) (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	// No limit of requests per second. Flux has a limit of 50 by default.
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kinds of the API server: %w", err)
	}
	kubeClient, err := client.New(config, client.Options{HTTPClient: httpClient, Mapper: mapper, Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	poller := polling.NewStatusPoller(kubeClient, mapper, polling.Options{})
	owner := ssa.Owner{Field: "flux-apply", Group: "flux-apply.example.com"}
	return ssa.NewResourceManager(kubeClient, poller, owner), nil
}

func setsIn(folders []string) ([]string, error) {
	var sets []string
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return nil, err
		}
		if len(files) > 0 {
			sets = append(sets, folder)
			continue
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			sets = append(sets, filepath.Join(folder, entry.Name()))
		}
	}
	if len(sets) == 0 {
		return nil, errors.New("no sets of manifests")
	}
	return sets, nil
}

func applySet(ctx context.Context, manager *ssa.ResourceManager, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		read, err := utils.ReadObjects(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", file, err)
		}
		objects = append(objects, read...)
	}
	if len(objects) == 0 {
		return fmt.Errorf("%s has no objects", folder)
	}
	manager.SetOwnerLabels(objects, filepath.Base(folder), "default")
	if _, err := manager.ApplyAllStaged(ctx, objects, ssa.DefaultApplyOptions()); err != nil {
		return fmt.Errorf("cannot apply %s: %w", folder, err)
	}
	return nil
}
