// Package crds finds the CustomResourceDefinitions of other projects, for tests
// that install all of them. They are read from the Go modules that test/inputs
// requires, as their authors released them: plain YAML, nothing is rendered.
package crds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// Set is CRDs that are installed together.
type Set struct {
	Name string
	// Module is the Go module that ships them.
	Module string
	// Folders of the module hold the definitions, besides other files.
	Folders []string
	// Samples are files of the module with objects of the set's kinds, besides
	// namespaces, and Invalid are files with objects the definitions refuse.
	Samples, Invalid []string
}

// Sets returns all sets.
func Sets() []Set {
	return []Set{
		{
			Name:    "gateway-api",
			Module:  "sigs.k8s.io/gateway-api",
			Folders: []string{"config/crd/standard"},
			Samples: []string{
				"examples/standard/0-namespaces.yaml",
				"examples/standard/http-*.yaml",
				"examples/standard/http-cors/*.yaml",
				"examples/standard/http-routing/*.yaml",
				"examples/standard/grpc-routing/*.yaml",
				"examples/standard/tcp-routing/*.yaml",
				"examples/standard/tls-routing/*.yaml",
				"examples/standard/udp-routing/*.yaml",
				"examples/standard/traffic-splitting/*.yaml",
				"examples/standard/wildcard-tls-gateway.yaml",
			},
			Invalid: []string{"hack/invalid-examples/standard/*/*.yaml"},
		},
		{
			Name:    "gateway-api-experimental",
			Module:  "sigs.k8s.io/gateway-api",
			Folders: []string{"config/crd/experimental"},
			Samples: []string{"examples/experimental/*.yaml", "examples/experimental/http-route-timeouts/*.yaml"},
			Invalid: []string{"hack/invalid-examples/*/*/*.yaml"},
		},
		{
			// The definitions before kustomize adds conversion webhooks, which run in the project's own controllers.
			Name:   "cluster-api",
			Module: "sigs.k8s.io/cluster-api",
			Folders: []string{
				"config/crd/bases",
				"bootstrap/kubeadm/config/crd/bases",
				"controlplane/kubeadm/config/crd/bases",
				"cmd/clusterctl/config/crd/bases",
			},
		},
		{
			Name:    "cert-manager",
			Module:  "github.com/cert-manager/cert-manager",
			Folders: []string{"deploy/crds"},
		},
	}
}

// Crossplane are CRDs that their project's installer creates one after the other,
// and uses at once.
func Crossplane() Set {
	return Set{Name: "crossplane", Module: "github.com/crossplane/crossplane/v2", Folders: []string{"cluster/crds"}}
}

// Files returns the set's CRD files. A file without any CRD, such as a
// kustomization, is left out.
func (s Set) Files(ctx context.Context) ([]string, error) {
	dir, err := s.dir(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, folder := range s.Folders {
		names, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(folder), "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all, err := kinds(name)
			if err != nil {
				return nil, err
			}
			if slices.Contains(all, "CustomResourceDefinition") {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no CRD in %v of %s", s.Name, s.Folders, dir)
	}
	return found, nil
}

// SampleFiles returns the files of Samples, InvalidFiles those of Invalid.
func (s Set) SampleFiles(ctx context.Context) ([]string, error) { return s.glob(ctx, s.Samples) }

// InvalidFiles returns files each of which has to be refused.
func (s Set) InvalidFiles(ctx context.Context) ([]string, error) { return s.glob(ctx, s.Invalid) }

func (s Set) glob(ctx context.Context, patterns []string) ([]string, error) {
	dir, err := s.dir(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%s: no file matches %s in %s", s.Name, pattern, dir)
		}
		found = append(found, names...)
	}
	return found, nil
}

// dir is where the module's files are. They are downloaded when they are not
// in the module cache.
func (s Set) dir(ctx context.Context) (string, error) {
	mod, err := run(ctx, ".", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	inputs := filepath.Join(filepath.Dir(string(bytes.TrimSpace(mod))), "inputs")
	out, err := run(ctx, inputs, "mod", "download", "-json", s.Module)
	if err != nil {
		return "", err
	}
	var module struct{ Dir, Error string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", s.Module, err)
	}
	if module.Error != "" {
		return "", fmt.Errorf("go mod download %s: %s", s.Module, module.Error)
	}
	return module.Dir, nil
}

func run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v in %s: %w: %s%s", args, dir, err, &stderr, out)
	}
	return out, nil
}

// kinds returns the kind of each document of a YAML file.
func kinds(name string) ([]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []string
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var object struct{ Kind string }
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, object.Kind)
	}
}
