package main

import (
	"cmp"
	"fmt"
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
			name: "kube-state-metrics", title: "kube-state-metrics", version: "v2.18.0",
			sources: []source{module{
				variable: "KSM", path: "k8s.io/kube-state-metrics/v2", version: "v2.18.0",
				binaries: map[string]string{"kube-state-metrics": "."},
				ldflags:  "-X=github.com/prometheus/common/version.Version=v2.18.0",
			}},
		},
		{
			// Its package.json brings a Node.js that the client runs on, as many machines have an older one.
			name: "client-node", title: "@kubernetes/client-node", version: "2.0.1",
			sources: []source{packages{variable: "CLIENT_NODE", name: "client-node"}},
		},
		{
			name: "kustomize-controller", title: "Flux kustomize-controller", version: "v1.9.6",
			sources: []source{
				// Of the source-controller only the definitions are used.
				module{variable: "SOURCE", path: "github.com/fluxcd/source-controller", version: "v1.9.6"},
				module{
					variable: "FLUX", path: "github.com/fluxcd/kustomize-controller", version: "v1.9.6",
					binaries: map[string]string{"kustomize-controller": "."},
					nested:   []string{"github.com/fluxcd/kustomize-controller/api"},
				},
			},
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
		if word := strings.Fields(line); len(word) > 0 && word[0] == "stop" {
			return nil, fmt.Errorf("%s: the command stop of testscript ends a script before its end; the one for programs is called end", p.name)
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
