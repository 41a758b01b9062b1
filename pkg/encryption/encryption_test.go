package encryption_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// marker is what must not be in the storage.
const marker = "nobody-shall-read-this"

// TestProviders has each provider encrypt a built-in, a typed and a custom
// resource: the text is not in the storage, and the API answers it.
func TestProviders(t *testing.T) {
	for _, provider := range []string{"secretbox", "aesgcm", "aescbc"} {
		t.Run(provider, func(t *testing.T) {
			storage := keep(t)
			s := start(t, storage, write(t, "", rule(`"*.*"`, local(provider, "a"))))
			for _, resource := range []string{"secrets", "apples", "gadgets", "realms"} {
				namespace := "default"
				if resource == "realms" {
					namespace = ""
				}
				s.create(namespace, resource, "one", marker)
				if got := s.text(namespace, resource, "one"); got != marker {
					t.Errorf("%s: read %q", resource, got)
				}
			}
			values := storage.raw(t, "/")
			delete(values, "/registry/health")                  // kine's own
			delete(values, "/registry/.internal/shared/format") // read before there are keys
			for key, value := range values {
				if bytes.Contains(value, []byte(marker)) {
					t.Errorf("%s has the text in it", key)
				}
				if !bytes.HasPrefix(value, []byte("k8s:enc:"+provider+":v1:a:")) {
					t.Errorf("%s is not encrypted: %.40q", key, value)
				}
			}
			for _, key := range []string{
				"/registry/secrets/default/one", "/registry/example.com/gadgets/default/one", "/registry/example.com/realms/one",
			} {
				if values[key] == nil {
					t.Errorf("%s is not in the storage", key)
				}
			}
		})
	}
}

// TestResources has rules for some resources only.
func TestResources(t *testing.T) {
	cases := map[string]struct {
		reason    string
		rules     []string
		encrypted []string
	}{
		"one built-in": {"the rest has no rule", []string{rule("secrets", local("secretbox", "a"))}, []string{"secrets"}},
		"one custom": {
			"resource.group names a CRD's",
			[]string{rule("gadgets.example.com", local("secretbox", "a"))},
			[]string{"gadgets"},
		},
		"core group":  {"*. is the core group", []string{rule(`"*."`, local("secretbox", "a"))}, []string{"configmaps", "secrets"}},
		"other group": {"*.group is every resource of it", []string{rule(`"*.example.com"`, local("secretbox", "a"))}, []string{"gadgets", "realms"}},
		"all but one": {
			"the first rule for a resource counts",
			[]string{rule("configmaps", plain), rule(`"*.*"`, local("secretbox", "a"))},
			[]string{"apples", "gadgets", "realms", "secrets"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			storage := keep(t)
			s := start(t, storage, write(t, "", c.rules...))
			var encrypted []string
			for resource, path := range map[string]string{
				"configmaps": "/configmaps/default/one", "secrets": "/secrets/default/one", "gadgets": "/example.com/gadgets/default/one",
				"realms": "/example.com/realms/one", "apples": "/fruit.example.com/apples/default/one",
			} {
				namespace := "default"
				if resource == "realms" {
					namespace = ""
				}
				s.create(namespace, resource, "one", marker)
				if !bytes.Contains(storage.stored(t, path), []byte(marker)) {
					encrypted = append(encrypted, resource)
				}
			}
			if slices.Sort(encrypted); !slices.Equal(encrypted, c.encrypted) {
				t.Errorf("%s: encrypted %s, want %s", c.reason, encrypted, c.encrypted)
			}
		})
	}
}

// TestLifecycle empties a namespace, collects garbage and counts what is used
// while every value is encrypted, the namespaces too.
func TestLifecycle(t *testing.T) {
	s := start(t, memory.Store{}, write(t, "", rule(`"*.*"`, local("secretbox", "a"))))
	s.create("", "namespaces", "shop", "")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/gadgets.example.com": apiresource.MustParse("2"), "secrets": apiresource.MustParse("9"),
			"configmaps": apiresource.MustParse("0"),
		}},
	}
	if _, err := s.CoreV1().ResourceQuotas("shop").Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(secrets, gadgets string) {
		t.Helper()
		until(t, fmt.Sprintf("%s secrets and %s gadgets are used", secrets, gadgets), func() bool {
			q, err := s.CoreV1().ResourceQuotas("shop").Get(t.Context(), "few", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n, m := q.Status.Used["secrets"], q.Status.Used["count/gadgets.example.com"]
			return n.String() == secrets && m.String() == gadgets
		})
	}
	used("0", "0")
	until(t, "the quota is in force", func() bool { // admission learns of its status a moment later
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		_, err := s.CoreV1().ConfigMaps("shop").Create(t.Context(), cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota")
	})
	boss := s.create("shop", "gadgets", "boss", "")
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "boss", UID: boss.GetUID()}
	s.create("shop", "secrets", "owned", "", owner)
	s.create("shop", "apples", "owned", "", owner)
	s.create("shop", "secrets", "free", "")
	used("2", "1")
	if err := s.in("shop", "gadgets").Delete(t.Context(), "boss", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.untilGone("shop", "secrets", "owned")
	s.untilGone("shop", "apples", "owned")
	used("1", "0")
	if err := s.in("", "namespaces").Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.untilGone("", "namespaces", "shop")
	s.untilGone("shop", "secrets", "free")
}

// TestRotation puts a new key first while the server runs, writes what is old
// again, and takes the old key away.
func TestRotation(t *testing.T) {
	storage := keep(t)
	file := write(t, "", rule("secrets, gadgets.example.com", local("secretbox", "a"), plain))
	s := start(t, storage, file)
	resources := map[string]string{"secrets": "/secrets/default/old", "gadgets": "/example.com/gadgets/default/old"}
	for resource := range resources {
		s.create("default", resource, "old", marker)
	}
	write(t, file, rule("secrets, gadgets.example.com", local("secretbox", "b", "a"), plain))
	n := 0
	until(t, "the new key encrypts", func() bool {
		name := fmt.Sprint("new-", n)
		n++
		s.create("default", "secrets", name, marker)
		return bytes.HasPrefix(storage.stored(t, "/secrets/default/"+name), []byte("k8s:enc:secretbox:v1:b:"))
	})
	for resource, path := range resources {
		if got := s.text("default", resource, "old"); got != marker {
			t.Errorf("%s of the old key: read %q", resource, got)
		}
		if value := storage.stored(t, path); !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:a:")) {
			t.Errorf("%s was written without being asked to: %.30q", resource, value)
		}
		// An update that changes nothing is written all the same.
		u, err := s.in("default", resource).Get(t.Context(), "old", metav1.GetOptions{})
		if err == nil {
			_, err = s.in("default", resource).Update(t.Context(), u, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if value := storage.stored(t, path); !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:b:")) {
			t.Errorf("%s was not encrypted again: %.30q", resource, value)
		}
	}
	for key, value := range storage.raw(t, "/secrets/") {
		if bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:a:")) {
			if err := s.in("default", "secrets").Delete(t.Context(), filepath.Base(key), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.stop()
	s = start(t, storage, write(t, "", rule("secrets, gadgets.example.com", local("secretbox", "b"))))
	for resource := range resources {
		if got := s.text("default", resource, "old"); got != marker {
			t.Errorf("%s without the old key: read %q", resource, got)
		}
	}
}

// TestReloadOfABrokenFile goes on with what was read before.
func TestReloadOfABrokenFile(t *testing.T) {
	storage := keep(t)
	file := write(t, "", rule("secrets", local("secretbox", "a")))
	s := start(t, storage, file)
	s.create("default", "secrets", "one", marker)
	write(t, file, rule("secrets", "secretbox: {keys: [{name: b, secret: c2hvcnQ=}]}"))
	write(t, file, rule("secrets", local("secretbox", "b", "a")))
	until(t, "the next file counts", func() bool {
		_, err := s.in("default", "secrets").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return bytes.HasPrefix(storage.stored(t, "/secrets/"), []byte("k8s:enc:secretbox:v1:b:"))
	})
}

// TestMissingKey reads what nobody has the key of: the server starts, says which
// resource it is, keeps what it cannot read, and goes on when the key is back.
func TestMissingKey(t *testing.T) {
	storage := keep(t)
	s := start(t, storage, write(t, "", rule("secrets, gadgets.example.com", local("secretbox", "a"))))
	s.create("", "namespaces", "shop", "")
	boss := s.create("shop", "gadgets", "boss", "")
	s.create("shop", "secrets", "one", marker)
	s.create("shop", "configmaps", "owned", "", metav1.OwnerReference{
		APIVersion: "example.com/v1", Kind: "Gadget", Name: "boss", UID: boss.GetUID(),
	})
	other := s.create("default", "gadgets", "other", "")
	dependent := s.create("default", "configmaps", "dependent", "", metav1.OwnerReference{
		APIVersion: "example.com/v1", Kind: "Gadget", Name: "other", UID: other.GetUID(),
	})
	parent := s.create("default", "configmaps", "parent", "")
	s.create("default", "secrets", "child", "", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "parent", UID: parent.GetUID()})
	s.stop()

	file := write(t, "", rule("secrets, gadgets.example.com", local("secretbox", "b")))
	s = start(t, storage, file)
	_, get := s.CoreV1().Secrets("shop").Get(t.Context(), "one", metav1.GetOptions{})
	_, list := s.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	_, custom := s.in("shop", "gadgets").Get(t.Context(), "boss", metav1.GetOptions{})
	for what, err := range map[string]error{"secrets /registry/secrets/shop/one": get, "secrets": list, "gadgets.example.com": custom} {
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "no matching key was found") {
			t.Errorf("read without the key: %v, want an error that names %s", err, what)
		}
	}
	s.create("shop", "secrets", "two", marker) // one that can be read
	if got := s.text("shop", "secrets", "two"); got != marker {
		t.Errorf("a Secret of the new key: %q", got)
	}
	orphan := metav1.DeletePropagationOrphan
	if err := s.in("default", "configmaps").Delete(t.Context(), "parent", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	if err := s.in("", "namespaces").Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the namespace says what keeps it", func() bool {
		ns, err := s.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "secrets")
		})
	})
	if len(storage.raw(t, "/secrets/shop/one")) == 0 {
		t.Error("a Secret that nobody can read was deleted")
	}
	if got, err := s.in("default", "configmaps").Get(t.Context(), "dependent", metav1.GetOptions{}); err != nil || got.GetUID() != dependent.GetUID() ||
		got.GetDeletionTimestamp() != nil {
		t.Errorf("the dependent of an owner that nobody can read: %v, %v, want it to stay", got, err)
	}
	if _, err := s.in("default", "configmaps").Get(t.Context(), "parent", metav1.GetOptions{}); err != nil {
		t.Errorf("an owner whose dependents cannot be read: %v, want it to wait for them", err)
	}

	write(t, file, rule("secrets, gadgets.example.com", local("secretbox", "b", "a")))
	s.untilGone("", "namespaces", "shop")
	s.untilGone("default", "configmaps", "parent")
	if child, err := s.in("default", "secrets").Get(t.Context(), "child", metav1.GetOptions{}); err != nil || len(child.GetOwnerReferences()) > 0 {
		t.Errorf("the dependent of an owner that left it: %v, %v", child, err)
	}
	if left := storage.raw(t, "/secrets/shop/"); len(left) > 0 {
		t.Errorf("the namespace is gone and left %d Secrets", len(left))
	}
}

// TestFileErrors are told by Build: each names the file, where in it, and what to do.
func TestFileErrors(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
	cases := map[string]struct {
		reason, content string
		mode            os.FileMode
		want            []string
	}{
		"missing":  {"there is no file", "", 0, []string{"no such file", "write one"}},
		"empty":    {"there is nothing in it", "", 0o600, []string{"the file is empty"}},
		"readable": {"there are keys in it", head, 0o604, []string{"mode 0604", "chmod 0600"}},
		"syntax":   {"YAML errors have a line", head + "resources: [\n", 0o600, []string{"line 3"}},
		"kind":     {"another object", "apiVersion: v1\nkind: Secret\n", 0o600, []string{"want apiserver.config.k8s.io/v1, EncryptionConfiguration"}},
		"field": {
			"a provider that does not exist", head + "resources:\n" + rule("secrets", "secretbocks: {}"), 0o600,
			[]string{`unknown field "resources[0].providers[0].secretbocks"`, "line 6"},
		},
		"nothing": {"no rules", head, 0o600, []string{"resources: Required value"}},
		"key size": {
			"a short key", head + "resources:\n" + rule("secrets", "identity: {}", "secretbox: {keys: [{name: a, secret: c2hvcnQ=}]}"), 0o600,
			[]string{"line 7", "resources[0].providers[1].secretbox.keys[0].secret", "expected one of [32]"},
		},
		"two in one": {
			"a provider has one kind", head + "resources:\n" + rule("secrets", "{identity: {}, secretbox: {keys: [{name: a, secret: c2hvcnQ=}]}}"), 0o600,
			[]string{"line 6", "resources[0].providers[0]: Invalid value: more than one provider"},
		},
		"key type": {
			"a key is text", head + "resources:\n" + rule("secrets", "secretbox: {keys: [{name: a, secret: [c2hvcnQ=]}]}"), 0o600,
			[]string{"cannot unmarshal array"},
		},
		"key form": {
			"a key is base64", head + "resources:\n" + rule("secrets", "secretbox: {keys: [{name: a, secret: '!c2hvcnQ'}]}"), 0o600,
			[]string{"resources[0].providers[0].secretbox.keys[0].secret"},
		},
		"kms v1": {
			"it is what no version means", head + "resources:\n" + rule("secrets", "kms: {name: vault, endpoint: 'unix:///absent'}"), 0o600,
			[]string{"line 6", "resources[0].providers[0].kms.apiVersion: it is v1, the default: write v2"},
		},
		"masked": {
			"a rule that never counts", head + "resources:\n" + rule(`"*.*"`, plain) + rule("secrets", plain), 0o600,
			[]string{"line 7", `resources[1].resources[0]: resource "secrets" is masked by earlier rule "*.*"`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "encryption.yaml")
			if c.mode != 0 {
				if err := os.WriteFile(file, []byte(c.content), c.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(file, c.mode); err != nil {
					t.Fatal(err)
				}
			}
			_, err := controlplane.New("encryption").Storage(memory.Store{}).With(parts(file)...).Build()
			if err == nil {
				t.Fatalf("%s: no error", c.reason)
			}
			for _, want := range append(c.want, file, `part "encryption": field ConfigFile: `) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v\nwant %q in it", c.reason, err, want)
				}
			}
			if strings.Contains(err.Error(), "c2hvcnQ") {
				t.Errorf("the error has a key in it: %v", err)
			}
		})
	}
}

// TestBuild checks a file with a key service that is not there, and asks it nothing.
func TestBuild(t *testing.T) {
	file := write(t, "", rule("secrets", kms("/absent", brief), local("secretbox", "a")))
	if _, err := controlplane.New("encryption").Storage(memory.Store{}).With(parts(file)...).Build(); err != nil {
		t.Error(err)
	}
}

// TestBuildErrors are told before anything runs.
func TestBuildErrors(t *testing.T) {
	cases := map[string]struct {
		parts []controlplane.Part
		want  string
	}{
		"no file": {[]controlplane.Part{encryption.AtRest{}}, "field ConfigFile: is empty"},
		"two": {
			[]controlplane.Part{encryption.AtRest{ConfigFile: "a"}, encryption.AtRest{ConfigFile: "b"}},
			`part "encryption": transformation of stored values: part "encryption" already provides one`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := controlplane.New("x").Storage(memory.Store{}).With(c.parts...).Build(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
