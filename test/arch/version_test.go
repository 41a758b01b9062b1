package arch

import (
	"regexp"
	"strings"
	"testing"
)

// TestVersionIsThatOfTheModules ties what /version says to the Kubernetes
// modules the library is built with.
func TestVersionIsThatOfTheModules(t *testing.T) {
	found := regexp.MustCompile(`kubernetesVersion = "v1\.(\d+\.\d+)"`).FindStringSubmatch(readFile(t, "pkg/controlplane/version.go"))
	if found == nil {
		t.Fatal("pkg/controlplane/version.go does not say which Kubernetes it is")
	}
	if want := "k8s.io/apiserver v0." + found[1] + "\n"; !strings.Contains(readFile(t, "go.mod"), want) {
		t.Errorf("pkg/controlplane/version.go says v1.%s, go.mod requires another k8s.io/apiserver", found[1])
	}
}
