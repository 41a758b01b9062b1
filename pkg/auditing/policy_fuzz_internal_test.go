package auditing

import "testing"

// FuzzPolicy: a policy that is read can be used, or what is wrong is said.
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
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := parse(content)
		if err != nil {
			return
		}
		if _, err := evaluator(p); err == nil && len(p.Rules) == 0 {
			t.Error("a policy without rules is taken")
		}
	})
}
