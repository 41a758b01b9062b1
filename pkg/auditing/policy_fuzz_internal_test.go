package auditing

import (
	"os"
	"path/filepath"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// FuzzPolicy: a policy that is read has rules and is valid.
func FuzzPolicy(f *testing.F) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for _, seed := range []string{
		"", head, head + "rules: [{level: Metadata}]\n", head + "rules: [{level: None, users: [a], verbs: [get]}, {level: RequestResponse}]\n",
		head + "rules: [{level: Metadata, omitStages: [RequestReceived], resources: [{group: '', resources: ['pods/*'], resourceNames: [a]}]}]\n",
		head + "rules: [{level: Loud}]\n", head + "rules: [{level: Metadata, nonResourceURLs: ['/a*b']}]\n", head + "rules: [{level: Metadata, color: red}]\n",
		head + "rules: &a [*a]\n", "apiVersion: v1\nkind: List\n", "{", "\x00",
	} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "policy.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var p auditinternal.Policy
		if err := readPolicy(file, &p); err != nil {
			return
		}
		if err := validate(&p); err != nil || len(p.Rules) == 0 {
			t.Errorf("%d rules were read: %v", len(p.Rules), err)
		}
	})
}
