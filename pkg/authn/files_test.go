package authn_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// hidden is in files of these tests, and in no error.
const hidden = "hidden-secret"

// TestFiles: Build reads every file, says which is missing or wrong, and what field it
// is of.
func TestFiles(t *testing.T) {
	t.Parallel()
	none, file, first := filepath.Join(t.TempDir(), "none"), plainFile(t, hidden, 0o600), newCA(t)
	public := first.serving(t, t.TempDir(), "one.example.com")
	chmod(t, public.KeyFile, 0o644)
	mixed := first.serving(t, t.TempDir(), "one.example.com")
	mixed.KeyFile = first.serving(t, t.TempDir(), "one.example.com").KeyFile
	all := plainFile(t, hidden+",ann,1\n", 0o604)
	noCA := plainFile(t, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"users: [{name: a, user: {token: "+hidden+"}}]\nclusters: [{name: a, cluster: {server: 'https://localhost', certificate-authority: "+none+"}}]\n", 0o600)
	cases := map[string]struct {
		reason string
		part   controlplane.Part
		want   []string // none: it is right
	}{
		"tokens":              {"they are good", authn.Tokens{File: plainFile(t, hidden+",ann,1\n", 0o600)}, nil},
		"tokens missing":      {"there is no file", authn.Tokens{File: none}, []string{`part "authn.Tokens": field File: open ` + none}},
		"tokens readable":     {"there are secrets in it", authn.Tokens{File: all}, []string{"field File: every user", "mode 0604", "chmod 0600 " + all}},
		"tokens wrong":        {"it has no columns", authn.Tokens{File: file}, []string{"field File: " + file + ": line 1 has 1 columns"}},
		"client ca":           {"they are authorities", authn.ClientCA{File: first.file(t)}, nil},
		"client ca missing":   {"there is no file", authn.ClientCA{File: none}, []string{`part "authn.ClientCA": field File: open ` + none}},
		"client ca wrong":     {"there is no certificate", authn.ClientCA{File: file}, []string{"field File: " + file + ": ", "any valid RSA or ECDSA certificates"}},
		"proxy":               {"they are authorities", authn.Proxy{ClientCAFile: first.file(t)}, nil},
		"proxy missing":       {"there is no file", authn.Proxy{ClientCAFile: none}, []string{`part "authn.Proxy": field ClientCAFile: open ` + none}},
		"proxy wrong":         {"there is no certificate", authn.Proxy{ClientCAFile: file}, []string{"field ClientCAFile: " + file + ": "}},
		"certificate":         {"it has its key", first.serving(t, t.TempDir(), "one.example.com"), nil},
		"certificate missing": {"there are no files", authn.ServingCertificate{CertFile: none, KeyFile: none + ".key"}, []string{`part "authn.ServingCertificate": fields CertFile and KeyFile: open ` + none + ":", "open " + none + ".key:"}},
		"certificate public":  {"everybody can read the key", public, []string{"fields CertFile and KeyFile: every user", "run chmod 0600 " + public.KeyFile}},
		"certificate mixed":   {"the key is of another one", mixed, []string{"fields CertFile and KeyFile: " + mixed.CertFile + ": ", "give a certificate and the key that belongs to it"}},
		"certificate no key":  {"the key is none", authn.ServingCertificate{CertFile: mixed.CertFile, KeyFile: file}, []string{"fields CertFile and KeyFile: " + mixed.CertFile + ": "}},
		"jwt":                 {"nobody is asked", authn.JWT{ConfigFile: configFile(t, jwtConfig(newAbsent(t)))}, nil},
		"jwt missing":         {"there is no file", authn.JWT{ConfigFile: none}, []string{`part "authn.JWT": field ConfigFile: open ` + none}},
		"jwt wrong":           {"it is none", authn.JWT{ConfigFile: file}, []string{"field ConfigFile: " + file + ": "}},
		"jwt section": {
			"the program reads it",
			authn.JWT{ConfigFile: "a", Read: func(string) ([]byte, error) { return nil, errors.New("the section is gone") }},
			[]string{"field ConfigFile: the section is gone"},
		},
		"webhook":         {"nobody is asked", authn.Webhook{ConfigFile: newReviewer(t).kubeconfig(t)}, nil},
		"webhook missing": {"there is no file", authn.Webhook{ConfigFile: none}, []string{`part "authn.Webhook": field ConfigFile: ` + none + ": stat "}},
		"webhook wrong":   {"it is none", authn.Webhook{ConfigFile: file}, []string{"field ConfigFile: " + file + ": "}},
		"webhook empty":   {"it says nothing", authn.Webhook{ConfigFile: plainFile(t, "apiVersion: v1\nkind: Config\n", 0o600)}, []string{"field ConfigFile: "}},
		"webhook ca":      {"it names a file that is not there", authn.Webhook{ConfigFile: noCA}, []string{"field ConfigFile: " + noCA + ": ", none}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := buildError(t, tc.part)
			if len(tc.want) == 0 {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("%s: no error, want %q", tc.reason, tc.want)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", tc.reason, err, want)
				}
			}
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

// TestFilesAtOnce: Build says everything that is wrong.
func TestFilesAtOnce(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	parts := []controlplane.Part{
		authn.Tokens{File: none},
		authn.ClientCA{File: none},
		authn.Proxy{ClientCAFile: none},
		authn.JWT{ConfigFile: none},
		authn.ServingCertificate{CertFile: none, KeyFile: none},
		authn.Webhook{ConfigFile: none},
	}
	_, err := controlplane.New("test").Storage(memory.Store{}).With(parts...).Build()
	if err == nil {
		t.Fatal("no file is there, and nothing is wrong")
	}
	for _, name := range []string{"Tokens", "ClientCA", "Proxy", "JWT", "ServingCertificate", "Webhook"} {
		if !strings.Contains(err.Error(), `part "authn.`+name+`": field`) {
			t.Errorf("it does not tell of %s: %v", name, err)
		}
	}
}

// plainFile writes a file.
func plainFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	replace(t, file, []byte(content), mode)
	return file
}
