package main

import (
	"cmp"
	"os"
	"path/filepath"
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
}

func programs() []program {
	return []program{
		helm("helm4", "Helm 4", "v4.3.1", "helm.sh/helm/v4", "helm.sh/helm/v4/internal/version.version"),
		helm("helm3", "Helm 3", "v3.22.0", "helm.sh/helm/v3", "helm.sh/helm/v3/internal/version.version"),
		{
			name: "kro", title: "kro", version: "v0.9.4",
			sources: []source{module{
				variable: "KRO", path: "github.com/kubernetes-sigs/kro", version: "v0.9.4",
				binaries: map[string]string{"kro": "./cmd/controller"},
			}},
		},
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
