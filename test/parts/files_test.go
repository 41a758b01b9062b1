package parts

import (
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/extend"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/sharing"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
)

// withFiles are parts with every field set that names a file, which is not there.
func withFiles(dir string) []controlplane.Part {
	missing := filepath.Join(dir, "missing")
	return []controlplane.Part{
		admit.ValidatingWebhooks{ConfigFile: missing},
		admit.MutatingWebhooks{ConfigFile: missing},
		aggregator.APIServices{Dir: missing, Servers: []aggregator.Server{{Name: "a/b", URL: "https://localhost", CAFile: missing}}},
		auditing.Log{PolicyFile: missing, Path: missing},
		auditing.Webhook{PolicyFile: missing, ConfigFile: missing},
		backup.Schedule{Dir: missing},
		authn.Admin{Dir: missing, Kubeconfig: missing},
		authn.ServingCertificate{CertFile: missing, KeyFile: missing},
		authn.ClientCA{File: missing, RevokedFile: missing},
		authn.Tokens{File: missing},
		authn.JWT{ConfigFile: missing},
		authn.Webhook{ConfigFile: missing},
		authn.Proxy{ClientCAFile: missing},
		authz.Config{ConfigFile: missing},
		authz.Webhook{ConfigFile: missing},
		authz.Webhook{Client: &rest.Config{
			Host: "https://localhost", TLSClientConfig: rest.TLSClientConfig{CAFile: missing, CertFile: missing, KeyFile: missing},
		}},
		certificates.Signer{Name: "example.com/client", CertificateFile: missing, KeyFile: missing},
		crd.Definitions{FS: os.DirFS(missing)},
		encryption.AtRest{ConfigFile: missing},
		extend.Host{Kubeconfig: missing},
		planetest.WithCRDs(os.DirFS(missing), os.DirFS(missing)),
		planetest.WithWebhooks(http.NotFoundHandler(), planetest.Files(missing)),
		serviceaccount.Tokens{KeyFile: missing},
		serviceaccount.Tokens{Dir: missing},
		sharing.Files{Dir: missing, ProxyDir: missing, KeyFile: missing},
		storageapi.EtcdStorages{Kubeconfig: missing, TemporaryDir: missing},
	}
}

// namesFiles tells whether a field may name a file.
func namesFiles(f reflect.StructField) bool {
	switch f.Type {
	case reflect.TypeFor[fs.FS](), reflect.TypeFor[*rest.Config]():
		return true
	case reflect.TypeFor[string]():
		for _, end := range []string{"File", "Kubeconfig", "Dir", "Path"} {
			if strings.HasSuffix(f.Name, end) {
				return true
			}
		}
	}
	return false
}

// TestEveryFileIsTried: no field that names a file is left out of withFiles.
func TestEveryFileIsTried(t *testing.T) {
	set := map[string]bool{}
	for _, p := range withFiles("nowhere") {
		v := reflect.ValueOf(p)
		if v.Kind() != reflect.Struct {
			continue
		}
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				set[nameOf(p)+"."+v.Type().Field(i).Name] = true
			}
		}
	}
	for _, p := range zeros() {
		t0 := reflect.TypeOf(p)
		if t0.Kind() != reflect.Struct {
			continue
		}
		for i := range t0.NumField() {
			if f := t0.Field(i); namesFiles(f) && !set[nameOf(p)+"."+f.Name] {
				t.Errorf("%s.%s may name a file: add a part that has it to withFiles", nameOf(p), f.Name)
			}
		}
	}
}

// Marks in the log of what a test of Go reads and asks.
const (
	installs1 = "begin to install "
	installed = "installed"
)

// marked is a part that marks when it is installed.
type marked struct{ controlplane.Part }

// InstallServer implements controlplane.ServerPart.
func (m marked) InstallServer(p *controlplane.ServerPlan) error {
	os.Getenv(installs1 + nameOf(m.Part))
	defer os.Getenv(installed)
	if s, ok := m.Part.(controlplane.ServerPart); ok {
		return s.InstallServer(p)
	}
	return m.Part.Install(p.Root())
}

// TestInstallReadsNothing installs every part in a process that logs the files it
// opens and looks for, as go test has it to know what a result depends on.
func TestInstallReadsNothing(t *testing.T) {
	if dir := os.Getenv("INSTALL_WITH_FILES_OF"); dir != "" {
		for _, p := range append(withFiles(dir), zeros()...) {
			// What is wrong with the part is told after Install, if at all.
			_, _ = controlplane.New("test").Storage(memory.Store{}).With(marked{p}).Build()
		}
		return
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.testlogfile="+log)
	cmd.Env = append(os.Environ(), "INSTALL_WITH_FILES_OF="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	part, count, reads := "", 0, 0
	for line := range strings.Lines(string(content)) {
		verb, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case verb == "getenv" && strings.HasPrefix(what, installs1):
			part = strings.TrimPrefix(what, installs1)
			count++
		case verb == "getenv" && what == installed:
			part = ""
		case verb != "open" && verb != "stat":
		case part != "":
			t.Errorf("Install of %s: %s %s: leave it to Plan.Read, or to work", part, verb, what)
		case strings.HasPrefix(what, dir):
			reads++ // by what was given to Plan.Read
		}
	}
	if want := len(withFiles(dir)) + len(zeros()); count != want {
		t.Errorf("%d parts were installed: want %d", count, want)
	}
	if reads == 0 {
		t.Error("no part read a file when it was installed: the log has nothing of it")
	}
}
