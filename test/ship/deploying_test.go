package ship

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// blocks are the blocks of a language in docs/deploying.md, but for those about the chart, which test/chart runs.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	before, chart, found := strings.Cut(read(t, repository(t), "docs/deploying.md"), "\n## Kubernetes: the chart\n")
	_, after, ends := strings.Cut(chart, "\n## ")
	if !found || !ends {
		t.Fatal("the page has no section about the chart, or nothing after it")
	}
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(before+"\n## "+after, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestDeploying runs the commands of docs/deploying.md where a release lies, on
// another root. Make says what it would do, since a release takes many minutes, and
// systemctl notes what it is asked.
func TestDeploying(t *testing.T) {
	t.Parallel()
	scripts := blocks(t, "sh")
	if len(scripts) != 4 {
		t.Fatalf("the page has %d scripts, want one for each of release, checksums, image and service", len(scripts))
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the page unpacks an archive for amd64")
	}
	dir, root := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dist"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive := "sailplane_v0.1.2_linux_amd64.tar.gz"
	pack(t, filepath.Join(dir, "dist", archive))
	sums := output(t, filepath.Join(dir, "dist"), "sha256sum", archive) + strings.Repeat("0", 64) + "  sailplane_v0.1.2_darwin_arm64.tar.gz\n"
	if err := os.WriteFile(filepath.Join(dir, "dist", "checksums.txt"), []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(repository(t), "config"), filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	const functions = `set -e
make() { command make --dry-run -C "$REPOSITORY" "$@" >>"$ROOT/made"; }
systemctl() { echo "$@" >>"$ROOT/systemctl"; }
`
	elsewhere := strings.NewReplacer(" /usr/", ` "$ROOT"/usr/`, " /etc/systemd/", ` "$ROOT"/etc/systemd/`)
	for _, script := range scripts {
		cmd := exec.Command("sh", "-c", functions+elsewhere.Replace(script))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "ROOT="+root, "REPOSITORY="+repository(t))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, script, out)
		}
	}
	made := read(t, root, "made")
	for _, want := range []string{"go run ./hack/release -dist dist -targets linux/amd64 ./cmd/sailplane", "buildah build ", "podman build "} {
		if !strings.Contains(made, want) {
			t.Errorf("make does not say %q:\n%s", want, made)
		}
	}
	if diff := cmp.Diff("daemon-reload\nenable --now sailplane\n", read(t, root, "systemctl")); diff != "" {
		t.Errorf("systemctl (-want +got):\n%s", diff)
	}
	if out := output(t, "", filepath.Join(root, "usr", "local", "bin", "sailplane"), "version"); !strings.HasPrefix(out, "sailplane ") {
		t.Errorf("what was installed says %q", out)
	}
	if read(t, root, "etc/systemd/system/sailplane.service") != read(t, repository(t), unitFile) {
		t.Error("the unit was not installed as it is")
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestScrapeConfig: Prometheus reads the files that the commands write, and gives the
// name of the job that alerts are for.
func TestScrapeConfig(t *testing.T) {
	t.Parallel()
	var config struct {
		RuleFiles     []string `json:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `json:"job_name"`
			Scheme        string `json:"scheme"`
			Authorization struct {
				CredentialsFile string `json:"credentials_file"`
			} `json:"authorization"`
			TLSConfig struct {
				CAFile string `json:"ca_file"`
			} `json:"tls_config"`
			StaticConfigs []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	all := blocks(t, "yaml")
	if len(all) != 1 {
		t.Fatalf("the page has %d blocks of YAML, want the configuration of Prometheus", len(all))
	}
	if err := yaml.UnmarshalStrict([]byte(all[0]), &config); err != nil || len(config.ScrapeConfigs) != 1 {
		t.Fatalf("%v\n%s", err, all[0])
	}
	job := config.ScrapeConfigs[0]
	console := strings.Join(blocks(t, "console"), "")
	for _, file := range []string{job.Authorization.CredentialsFile, job.TLSConfig.CAFile} {
		if file == "" || !strings.Contains(console, "> "+file+"\n") {
			t.Errorf("no command writes %q", file)
		}
	}
	monitoring := filepath.Join(repository(t), "config", "monitoring")
	for _, file := range config.RuleFiles {
		if alerts := read(t, monitoring, file); !strings.Contains(alerts, `{job="`+job.JobName+`"`) {
			t.Errorf("%s is not for the job %s", file, job.JobName)
		}
	}
}
