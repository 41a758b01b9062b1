package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
)

const head = "apiVersion: sailplane.dev/v1alpha1\nkind: Server\n"

// read returns the configuration of a file.
func read(t *testing.T, content string) (*config.Server, *config.Document, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	d := config.New()
	if err := d.File(path); err != nil {
		return nil, d, err
	}
	c, err := d.Server()
	return c, d, err
}

// TestDefaults: the file with the defaults has every field, and is a configuration.
func TestDefaults(t *testing.T) {
	c, _, err := read(t, config.Defaults)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := config.New().Server()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, c); diff != "" {
		t.Errorf("the defaults as a file differ (-defaults +file):\n%s", diff)
	}
	keys := regexp.MustCompile(`(?m)^( *)(?:# - |#   |# )?(\w+):`).FindAllStringSubmatch(config.Defaults, -1)
	var have []string
	for _, key := range keys {
		have = append(have, key[2])
	}
	var check func(reflect.Type, string)
	check = func(r reflect.Type, path string) {
		for i := range r.NumField() {
			name := strings.Split(r.Field(i).Tag.Get("json"), ",")[0]
			if !slices.Contains(have, name) {
				t.Errorf("server.yaml does not name %s%s", path, name)
			}
			if f := r.Field(i).Type; f.Kind() == reflect.Struct && f.PkgPath() == r.PkgPath() {
				check(f, path+name+".")
			}
		}
	}
	check(reflect.TypeFor[config.Server](), "")
}

// TestExamples: what server.yaml has as comments can be uncommented.
func TestExamples(t *testing.T) {
	var lines []string
	count := 0
	for line := range strings.Lines(config.Defaults) {
		if example := regexp.MustCompile(`^( *)# (- |  )(.*\n)`).FindStringSubmatch(line); example != nil {
			lines[len(lines)-1] = strings.Replace(lines[len(lines)-1], ": []", ":", 1)
			line = example[1] + example[2] + example[3]
			count++
		}
		lines = append(lines, line)
	}
	c, _, err := read(t, strings.Join(lines, ""))
	if err != nil || count == 0 {
		t.Fatalf("%d lines uncommented: %v\n%s", count, err, strings.Join(lines, ""))
	}
	if len(c.Serving.Certificates) != 1 || len(c.Authentication.JWT) != 1 || len(c.Authorization.Authorizers) != 1 || len(c.Services.Addresses) != 1 || len(c.Aggregation.Servers) != 1 {
		t.Errorf("examples are missing: %+v", c)
	}
}

func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, content string
		want            []string
	}{
		"Unknown":  {"a field that does not exist", head + "storage:\n  quot: 1\n", []string{"server.yaml:4: storage.quot: unknown field: want one of caFile,"}},
		"Deep":     {"a field of a type of Kubernetes", head + "authentication:\n  jwt:\n  - issuer: {urll: a}\n", []string{"server.yaml:5: authentication.jwt[0].issuer.urll: unknown field"}},
		"Type":     {"a number is no text", head + "listen: 6443\n", []string{`server.yaml:3: listen: found "6443", want text`}},
		"List":     {"a word is no list", head + "resources: all\n", []string{"server.yaml:3: resources: want a list"}},
		"Duration": {"no duration", head + "storage: {history: 5}\n", []string{"server.yaml:3: storage.history: found \"5\", want a duration, such as 5m"}},
		"Size":     {"no size", head + "limits: {objectSize: big}\n", []string{"limits.objectSize: found \"big\", want a size"}},
		"Number":   {"no number", head + "limits: {watches: many}\n", []string{"limits.watches: found \"many\", want a whole number"}},
		"Fields":   {"no fields", head + "storage: memory\n", []string{"server.yaml:3: storage: want fields: caFile,"}},
		"Twice":    {"a field has one value", head + "crds: a\ncrds: b\n", []string{"server.yaml:4: crds: given twice"}},
		"All":      {"every mistake is told", head + "lisen: a\ndatadir: b\n", []string{":3: lisen: unknown", ":4: datadir: unknown"}},
		"Empty":    {"a file says what it is", "", []string{"server.yaml is empty: begin it with apiVersion"}},
		"Version":  {"of a later version", "apiVersion: sailplane.dev/v9\nkind: Server\n", []string{`line 1: apiVersion: found "sailplane.dev/v9", want`}},
		"Kind":     {"another file", "apiVersion: sailplane.dev/v1alpha1\nkind: Pod\n", []string{`line 2: kind: found "Pod", want Server`}},
		"Two":      {"one file is one document", head + "---\n" + head, []string{"a second document"}},
		"Syntax":   {"no YAML", head + "a: [\n", []string{"server.yaml: yaml: line"}},
		"Bomb":     {"aliases may not repeat without end", head + bomb(), []string{"more than 100000 values"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(t, tc.content)
			if err == nil {
				t.Fatalf("%s: no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", tc.reason, err, want)
				}
			}
		})
	}
}

// bomb is a small file with a billion values.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		n := string(rune('0' + i - 1))
		b.WriteString("a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.TrimSuffix(strings.Repeat("*a"+n+", ", 10), ", ") + "]\n")
	}
	return b.String()
}

// TestWho: a flag wins over the environment, which wins over the file; each says where it is from.
func TestWho(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.yaml")
	content := head + "listen: file:1\ndataDir: file\nresources: [pods]\nlimits: {watches: 3}\nauthentication: {anonymousPaths: []}\nkubeconfig: null\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SAILPLANE_LISTEN", "environment:1")
	t.Setenv("SAILPLANE_DATA_DIR", "environment")
	t.Setenv("SAILPLANE_CRDS", "")
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	given := config.Register(set, config.Flags(), config.New())
	args := []string{
		"--listen=flag:1", "--service=a/b=c:1", "--service=a/c=d:1", "--tls-sni-cert-key=a,b:c,d", "--profiling", "--audit-log-maxsize=3", "-v=2",
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	d := config.New()
	if err := d.File(path); err != nil {
		t.Fatal(err)
	}
	if err := given.Apply(d); err != nil {
		t.Fatal(err)
	}
	c, err := d.Server()
	if err != nil {
		t.Fatal(err)
	}
	want, err := config.New().Server()
	if err != nil {
		t.Fatal(err)
	}
	want.Listen, want.DataDir, want.Resources, want.Limits.Watches, want.Profiling, want.Log.Verbosity = "flag:1", "environment", []string{"pods"}, 3, true, 2
	want.Authentication.AnonymousPaths = []string{}
	want.Services.Addresses = []config.Address{{Service: "a/b", Address: "c:1"}, {Service: "a/c", Address: "d:1"}}
	want.Serving.Certificates = []config.Certificate{{CertFile: "a", KeyFile: "b", Names: []string{"c", "d"}}}
	want.Audit.MaxSize = c.Audit.MaxSize
	if diff := cmp.Diff(want, c); diff != "" || c.Audit.MaxSize.Value() != 3<<20 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for field, want := range map[string]string{
		"listen": "--listen", "dataDir": "SAILPLANE_DATA_DIR", "resources": path + ":5: resources", "storage.url": "storage.url",
	} {
		if got := d.At(field); got != want {
			t.Errorf("%s comes from %q, want %q", field, got, want)
		}
	}
}

// TestWrite: what is printed is a file that says the same, with origins and without passwords.
func TestWrite(t *testing.T) {
	c, d, err := read(t, head+"storage: {url: 'postgres://u:s3cret@h/d'}\nauthorization: {filteredLists: [pods]}\nlimits: {watches: 3}\n")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := d.Write(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Contains(text, "s3cret") || !regexp.MustCompile(`watches: 3 # .*server.yaml:5`).MatchString(text) {
		t.Errorf("printed:\n%s", text)
	}
	again, _, err := read(t, text)
	if err != nil {
		t.Fatal(err)
	}
	c.Storage.URL = config.WithoutLogin(c.Storage.URL)
	if diff := cmp.Diff(c, again); diff != "" {
		t.Errorf("what was printed says something else (-first +second):\n%s", diff)
	}
	out.Reset()
	if err := config.New().Write(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Defaults, out.String()); diff != "" {
		t.Errorf("the defaults are printed in another form (-file +printed):\n%s", diff)
	}
}

// TestFlags: each flag sets a field, server.yaml names it, and has help.
func TestFlags(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Register(set, config.Flags(), config.New())
	for _, f := range config.Flags() {
		if at := config.New().At(f.Field); at != f.Field {
			t.Errorf("--%s sets %s, which has no default (%s)", f.Name, f.Field, at)
		}
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
		if !strings.Contains(config.Defaults, "--"+f.Name) && !strings.HasPrefix(f.Name, "requestheader-") {
			t.Errorf("server.yaml does not name --%s", f.Name)
		}
	}
	if err := set.Parse([]string{"--drain=3s", "--encryption-config=f"}); err != nil {
		t.Error(err)
	}
	if f := set.Lookup("encryption-config"); f == nil || !f.Hidden || f.Deprecated == "" {
		t.Errorf("the old name of a flag: %+v", f)
	}
}

// FuzzFile: any file is a configuration or an error that begins with its name.
func FuzzFile(f *testing.F) {
	f.Add(config.Defaults)
	f.Add(head + "a: &a [*a]\n")
	f.Add(head + "<<: {listen: a}\n? [a]\n: b\n")
	f.Fuzz(func(t *testing.T, content string) {
		c, _, err := read(t, content)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
	})
}
