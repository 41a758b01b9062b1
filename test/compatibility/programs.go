package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// program is one that people use with Kubernetes.
type program struct {
	name, title string
	// script is that of its file in programs/, where it is not the name.
	script string
	// version is the one that people know it by.
	version string
	sources []source
	// uses are programs that must run, or be there, for this one.
	uses []string
	// needs is what a server with the defaults has to be told, as Markdown.
	needs string
	// note is what else a reader has to know of how it was built or run, as Markdown.
	note string
}

// programs are all of them, in the order of the page.
func programs() []program { return slices.Concat(clients(), platforms(), controllers()) }

// clients are programs of people.
func clients() []program {
	return []program{
		helm("helm4", "Helm 4", "v4.3.1", "helm.sh/helm/v4", "helm.sh/helm/v4/internal/version.version"),
		helm("helm3", "Helm 3", "v3.22.0", "helm.sh/helm/v3", "helm.sh/helm/v3/internal/version.version"),
		{
			name: "tofu", title: "OpenTofu", version: "v1.12.6, hashicorp/kubernetes v1.13.4, gavinbunney/kubectl v1.19.0",
			sources: []source{
				module{
					path: "github.com/opentofu/opentofu", version: "v1.12.6",
					binaries: map[string]string{"tofu": "./cmd/tofu"}, ldflags: "-X=github.com/opentofu/opentofu/version.dev=no",
				},
				// It is the last version that is a Go module by this name.
				module{
					bin: "KUBERNETES", path: "github.com/hashicorp/terraform-provider-kubernetes", version: "v1.13.4",
					binaries: map[string]string{"terraform-provider-kubernetes": "."}, replaced: map[string]string{"vbom.ml/util": ""},
				},
				module{
					bin: "KUBECTL", path: "github.com/gavinbunney/terraform-provider-kubectl", version: "v1.19.0",
					binaries: map[string]string{"terraform-provider-kubectl": "."},
				},
			},
			note: "The providers are the last that are Go modules by these names: the kubernetes provider is of 2020 and has no " +
				"`kubernetes_manifest`, so the one for kubectl applies the custom resources.",
		},
		{
			name: "k9s", title: "k9s", version: "v0.50.16",
			sources: []source{module{
				path: "github.com/derailed/k9s", version: "v0.50.16",
				binaries: map[string]string{"k9s": "."}, ldflags: "-X=github.com/derailed/k9s/cmd.version=v0.50.16",
			}},
		},
		{
			// Its package.json brings a Node.js that the client runs on, as many machines have an older one.
			name: "client-node", title: "@kubernetes/client-node", version: "2.0.1",
			sources: []source{packages{variable: "CLIENT_NODE", name: "client-node"}},
		},
	}
}

// platforms are sets of controllers with webhooks.
func platforms() []program {
	return []program{
		{
			name: "cert-manager", title: "cert-manager", version: "v1.21.2",
			uses: []string{"helm4"}, // for its chart
			sources: []source{
				module{variable: "CERT_MANAGER", path: "github.com/cert-manager/cert-manager", version: "v1.21.2"},
				local{
					dir: "certmanager",
					binaries: map[string]string{
						"cert-manager-controller": "./controller",
						"cert-manager-webhook":    "./webhook",
						"cert-manager-cainjector": "./cainjector",
					},
					ldflags: "-X=github.com/cert-manager/cert-manager/pkg/util.AppVersion=v1.21.2",
				},
			},
			needs: "`--service` for its webhook",
			note: "Its controllers, webhook and injector are in main packages of this repository, since those of cert-manager are " +
				"modules that cannot be fetched by their names; without the issuer of Venafi.",
		},
		{
			name: "crossplane", title: "Crossplane", version: "v2.0.2",
			uses: []string{"helm4"}, // for its chart
			sources: []source{
				module{
					variable: "CROSSPLANE", path: "github.com/crossplane/crossplane/v2", version: "v2.0.2",
					binaries: map[string]string{"crossplane": "./cmd/crossplane"},
					ldflags:  "-X=github.com/crossplane/crossplane/v2/internal/version.version=v2.0.2",
				},
				module{ // a registry of packages
					path: "github.com/google/go-containerregistry", version: "v0.20.6",
					binaries: map[string]string{"crane": "./cmd/crane"},
				},
				local{dir: "greengrocer", binaries: map[string]string{"greengrocer": "."}},
			},
			needs: "`--service` for its webhook",
		},
		{
			name: "cluster-api", title: "Cluster API", version: "v1.13.6",
			uses: []string{"cert-manager", "helm4"}, // for the certificates of its webhooks
			sources: []source{module{
				variable: "CAPI", path: "sigs.k8s.io/cluster-api", version: "v1.13.6",
				binaries: map[string]string{
					"clusterctl":                 "./cmd/clusterctl",
					"capi-core":                  ".",
					"capi-kubeadm-bootstrap":     "./bootstrap/kubeadm",
					"capi-kubeadm-control-plane": "./controlplane/kubeadm",
				},
				ldflags: "-X=sigs.k8s.io/cluster-api/version.gitVersion=v1.13.6",
			}},
			needs: "`--service` for each of its webhooks, and those of cert-manager",
		},
	}
}

// controllers are single ones, and those of policies.
func controllers() []program {
	return []program{
		{
			name: "kro", title: "kro", version: "v0.9.4",
			sources: []source{module{
				variable: "KRO", path: "github.com/kubernetes-sigs/kro", version: "v0.9.4",
				binaries: map[string]string{"kro": "./cmd/controller"},
			}},
		},
		{
			name: "kyverno", title: "Kyverno", version: "v1.19.1",
			needs: "`--service` for its two webhook servers",
			sources: []source{module{
				variable: "KYVERNO", path: "github.com/kyverno/kyverno", version: "v1.19.1",
				binaries: map[string]string{
					"kyverno":                       "./cmd/kyverno",
					"kyverno-init":                  "./cmd/kyverno-init",
					"kyverno-background-controller": "./cmd/background-controller",
					"kyverno-cleanup-controller":    "./cmd/cleanup-controller",
					"kyverno-reports-controller":    "./cmd/reports-controller",
				},
				ldflags: "-X=github.com/kyverno/kyverno/pkg/version.BuildVersion=v1.19.1",
			}},
		},
		{
			name: "kustomize-controller", title: "Flux kustomize-controller", version: "v1.9.6",
			sources: []source{
				// Of the source-controller only the definitions are used.
				module{variable: "SOURCE", path: "github.com/fluxcd/source-controller", version: "v1.9.6"},
				module{
					variable: "FLUX", path: "github.com/fluxcd/kustomize-controller", version: "v1.9.6",
					binaries: map[string]string{"kustomize-controller": "."},
					replaced: map[string]string{"github.com/fluxcd/kustomize-controller/api": "v1.9.6"},
				},
			},
			note: "The script serves the archive of the source and writes the status of the GitRepository, as the source-controller would.",
		},
		{
			name: "kube-state-metrics", title: "kube-state-metrics", version: "v2.18.0",
			sources: []source{module{
				variable: "KSM", path: "k8s.io/kube-state-metrics/v2", version: "v2.18.0",
				binaries: map[string]string{"kube-state-metrics": "."},
				ldflags:  "-X=github.com/prometheus/common/version.Version=v2.18.0",
			}},
		},
	}
}

// file is that of a program's script.
func (p program) file(root string) string {
	return filepath.Join(root, "test", "compatibility", "programs", cmp.Or(p.script, p.name)+".txtar")
}

// steps are the comments of a program's script: each says what is true when the commands
// below it have succeeded.
func (p program) steps(root string) ([]string, error) {
	text, err := os.ReadFile(p.file(root))
	if err != nil {
		return nil, err
	}
	commands, _, _ := strings.Cut("\n"+string(text), "\n-- ")
	var steps []string
	var goesOn bool
	for line := range strings.Lines(commands) {
		// This command of testscript ends a script as if it had passed.
		if strings.HasPrefix(strings.TrimSpace(line), "stop") {
			return nil, fmt.Errorf("%s: %q leaves out the rest of the script: use halt to stop a program", p.file(""), strings.TrimSpace(line))
		}
		comment, is := strings.CutPrefix(line, "# ")
		comment = strings.TrimSpace(comment)
		switch {
		case is && goesOn:
			steps[len(steps)-1] += " " + comment
		case is:
			steps = append(steps, comment)
		}
		goesOn = is
	}
	return steps, nil
}

func helm(name, title, version, path, variable string) program {
	return program{
		name: name, title: title, script: "helm", version: version,
		sources: []source{module{
			path: path, version: version,
			binaries: map[string]string{"helm": "./cmd/helm"}, ldflags: "-X=" + variable + "=" + version,
		}},
	}
}
