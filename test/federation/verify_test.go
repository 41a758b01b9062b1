package federation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/verify"
)

// finds verifies a server: by itself what is about the server, and its resources through the front.
// What it finds is what docs/verified.md says below a heading, and no more.
func (f *front) finds(t *testing.T, heading, group string, itself *rest.Config) {
	t.Helper()
	front, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	front.QPS = -1
	var ofServer, ofResources []string
	for _, c := range verify.Checks() {
		if c.OfResource {
			ofResources = append(ofResources, c.ID)
		} else {
			ofServer = append(ofServer, c.ID)
		}
	}
	var got []string
	for _, o := range []verify.Options{
		{Config: itself, Only: ofServer, Groups: []string{"none"}}, {Config: front, Only: ofResources, Groups: []string{group}},
	} {
		report, err := verify.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Outcome != verify.Passed {
				t.Log(r)
			}
		}
		for _, r := range report.Failed() {
			got = append(got, r.ID+" of "+strings.TrimSuffix(r.Resource, "."+group))
		}
		t.Logf("%d passed, %d failed, %d skipped in %.1f s",
			report.Count(verify.Passed), report.Count(verify.Failed), report.Count(verify.Skipped), report.Seconds)
	}
	slices.Sort(got)
	if want := documented(t, heading); !slices.Equal(got, want) {
		t.Errorf("it is found:\n%s\nand docs/verified.md says:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// documented is what the table below a heading has: IDs of checks, and resources or the server.
func documented(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "verified.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/verified.md has no heading %s", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(line, "| `") {
			continue
		}
		for resource := range strings.SplitSeq(cells[2], ",") {
			of := strings.Trim(resource, " `")
			if of == "the server" {
				of = ""
			}
			all = append(all, strings.Trim(cells[1], " `")+" of "+of)
		}
	}
	slices.Sort(all)
	return all
}

// direct is how to reach a server behind the front by itself, as the account of a kubeconfig.
func direct(t *testing.T, identity, port string, ca []byte) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", identity)
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{
		Host: "https://127.0.0.1:" + port, BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
}
