package controlplane

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// kubernetesVersion is the Kubernetes release whose API a server speaks: that
// of the k8s.io modules it is built with.
const kubernetesVersion = "v1.37.2"

// modulePath is where this library is found in a program's build information.
const modulePath = "github.com/sailplane-dev/sailplane"

// Version is what /version tells: compatible with Kubernetes in major, minor
// and gitVersion, whose build metadata (semver.org, item 10) names Sailplane
// and its version, as distributions of Kubernetes do.
func Version() apiversion.Info {
	parts := strings.SplitN(strings.TrimPrefix(kubernetesVersion, "v"), ".", 3)
	info := apiversion.Info{
		Major: parts[0], Minor: parts[1],
		GitVersion: kubernetesVersion + "+sailplane", GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH),
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	modules := append([]*debug.Module{&build.Main}, build.Deps...)
	for _, m := range modules {
		if m.Path == modulePath && m.Version != "" && m.Version != "(devel)" {
			info.GitVersion += "." + strings.Map(metadataRune, m.Version)
		}
	}
	if build.Main.Path != modulePath {
		return info // the revision is that of the program around the library
	}
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			info.GitCommit = s.Value
		case s.Key == "vcs.time":
			info.BuildDate = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			info.GitTreeState = "dirty"
		}
	}
	return info
}

// metadataRune keeps what semver allows in build metadata.
func metadataRune(r rune) rune {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '-', r == '.':
		return r
	}
	return '-'
}

// effective is the version features and APIs are gated by, with our own build information.
type effective struct {
	compatibility.EffectiveVersion
}

func effectiveVersion() compatibility.EffectiveVersion {
	return effective{compatibility.NewEffectiveVersionFromString(kubernetesVersion, "", "")}
}

// Info implements compatibility.EffectiveVersion.
func (e effective) Info() *apiversion.Info {
	info := Version()
	gates := e.EffectiveVersion.Info()
	info.EmulationMajor, info.EmulationMinor = gates.EmulationMajor, gates.EmulationMinor
	info.MinCompatibilityMajor, info.MinCompatibilityMinor = gates.MinCompatibilityMajor, gates.MinCompatibilityMinor
	return &info
}
