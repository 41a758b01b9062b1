package authz_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// configuration is a file's content with the entries.
func configuration(entries ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n" + strings.Join(entries, "")
}

const entryRBAC = "- {type: RBAC, name: roles}\n"

// entryWebhook asks the server of a kubeconfig; more are further fields.
func entryWebhook(name, kubeconfig string, more ...string) string {
	fields := append([]string{
		"timeout: 30s", "subjectAccessReviewVersion: v1", "matchConditionSubjectAccessReviewVersion: v1",
		"failurePolicy: Deny", "connectionInfo: {type: KubeConfigFile, kubeConfigFile: " + kubeconfig + "}",
	}, more...)
	return fmt.Sprintf("- {type: Webhook, name: %s, webhook: {%s}}\n", name, strings.Join(fields, ", "))
}

func configFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	replace(t, file, content)
	return file
}

func TestConfig(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	down := newAbsent(t)
	file, gone := r.kubeconfig(t), down.kubeconfig(t)
	type users map[string]func(error) bool
	cases := map[string]struct {
		reason, content string
		users           users
	}{
		"webhook, RBAC": {
			"in the order of the file", configuration(entryWebhook("policy", file), entryRBAC),
			users{"alice": allowed, "bob": saying(apierrors.IsForbidden, "bob is on leave"), "carol": allowed, "dave": apierrors.IsForbidden},
		},
		"RBAC, webhook": {
			"in the order of the file", configuration(entryRBAC, entryWebhook("policy", file)),
			users{"alice": allowed, "bob": allowed, "carol": allowed, "dave": saying(apierrors.IsForbidden, "never heard of dave")},
		},
		"RBAC": {"it is as the part", configuration(entryRBAC), users{"alice": apierrors.IsForbidden, "carol": allowed}},
		"down": {
			"the policy of the file counts", configuration(entryWebhook("policy", gone), entryRBAC),
			users{"carol": apierrors.IsInternalError},
		},
		"down, no opinion": {
			"the policy of the file counts",
			configuration(strings.Replace(entryWebhook("gone", gone), "Deny", "NoOpinion", 1), entryWebhook("policy", file), entryRBAC),
			users{"alice": allowed, "bob": apierrors.IsForbidden, "carol": allowed},
		},
		"conditions": {
			"who does not match is not asked about",
			configuration(entryWebhook("policy", file, `matchConditions: [{expression: "request.user != 'bob'"}]`), entryRBAC),
			users{"alice": allowed, "bob": allowed},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _ := run(t, memory.Store{}, bound(authz.Config{ConfigFile: configFile(t, tc.content)})...)
			if strings.Contains(tc.content, entryRBAC) {
				letViewers(t, config)
			}
			for user, ok := range tc.users {
				client := as(t, config, user)
				untilAnswer(t, user+": "+tc.reason, ok, func() error { return mayList(t, client) })
			}
		})
	}
}

// TestConfigRemembers: what the file says of answers counts.
func TestConfigRemembers(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	file := configFile(t, configuration(entryWebhook("policy", r.kubeconfig(t), "cacheUnauthorizedRequests: false")))
	config, _ := run(t, memory.Store{}, bound(authz.Config{ConfigFile: file})...)
	alice, bob := as(t, config, "alice"), as(t, config, "bob")
	for range 3 {
		if err := mayList(t, alice); err != nil {
			t.Error(err)
		}
		if err := mayList(t, bob); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	}
	if a, b := len(r.about("alice")), len(r.about("bob")); a != 1 || b != 3 {
		t.Errorf("%d and %d reviews, want 1 and 3", a, b)
	}
}

// TestConfigIsReloaded is not parallel: it reads the metrics of the process.
func TestConfigIsReloaded(t *testing.T) {
	first, second := newReviewer(t, nil), newReviewer(t, opinions())
	one, two := entryWebhook("one", first.kubeconfig(t)), entryWebhook("two", second.kubeconfig(t))
	file := configFile(t, configuration(one, entryRBAC))
	config, _ := run(t, memory.Store{}, bound(authz.Config{ConfigFile: file})...)
	letViewers(t, config)
	admin, alice, bob := as(t, config, ""), as(t, config, "alice"), as(t, config, "bob")
	metrics := func() string {
		text, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	failures := func() string {
		return regexp.MustCompile(`(?m)^apiserver_authorization_config_controller_automatic_reloads_total{.*status="failure"} .*$`).FindString(metrics())
	}
	until(t, "bob is bound", func() bool { return mayList(t, bob) == nil })
	if err := mayList(t, alice); !apierrors.IsForbidden(err) {
		t.Errorf("nobody knows alice: %v", err)
	}

	replace(t, file, configuration(one, two, entryRBAC))
	until(t, "a second webhook allows alice", func() bool { return mayList(t, alice) == nil })
	if err := mayList(t, bob); !saying(apierrors.IsForbidden, "bob is on leave")(err) {
		t.Errorf("and denies bob: %v", err)
	}
	for reason, content := range map[string]string{
		"not YAML":                     "authorizers: [",
		"not valid":                    configuration(one, two, entryRBAC, entryRBAC),
		"no RBAC":                      configuration(one),
		"a kubeconfig that is missing": configuration(entryWebhook("two", filepath.Join(t.TempDir(), "none")), entryRBAC),
	} {
		before := failures()
		replace(t, file, content)
		until(t, reason+": it is looked at", func() bool { return failures() != before })
		if err := mayList(t, alice); err != nil {
			t.Errorf("%s changes nothing: %v", reason, err)
		}
		if err := mayList(t, bob); !apierrors.IsForbidden(err) {
			t.Errorf("%s changes nothing: %v", reason, err)
		}
	}
	replace(t, file, configuration(entryRBAC, one, two))
	until(t, "RBAC is asked first", func() bool { return mayList(t, bob) == nil })
	replace(t, file, configuration(entryRBAC, one))
	until(t, "the second webhook is gone", func() bool { return apierrors.IsForbidden(mayList(t, alice)) })

	for _, line := range []string{
		`apiserver_authorization_decisions_total{decision="allowed",name="two",type="Webhook"}`,
		`apiserver_authorization_decisions_total{decision="denied",name="two",type="Webhook"}`,
		`apiserver_authorization_decisions_total{decision="allowed",name="roles",type="RBAC"}`,
		`apiserver_authorization_webhook_evaluations_total{name="two",result="success"}`,
		`apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash="",status="success"}`,
		`apiserver_authorization_config_controller_last_config_info{apiserver_id_hash="",hash="sha256:`,
	} {
		if !strings.Contains(metrics(), line) {
			t.Errorf("metrics have no %s", line)
		}
	}
}

// TestConfigReads: the configuration may be a section of a file of the program.
func TestConfigReads(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	file := configFile(t, configuration(entryRBAC))
	read := func(name string) ([]byte, error) { return os.ReadFile(strings.TrimSuffix(name, "#authorization")) }
	config, _ := run(t, memory.Store{}, bound(authz.Config{ConfigFile: file + "#authorization", Read: read})...)
	alice := as(t, config, "alice")
	if err := mayList(t, alice); !apierrors.IsForbidden(err) {
		t.Errorf("nobody knows alice: %v", err)
	}
	replace(t, file, configuration(entryWebhook("policy", r.kubeconfig(t)), entryRBAC))
	until(t, "a webhook allows alice", func() bool { return mayList(t, alice) == nil })

	broken := func(string) ([]byte, error) { return nil, errors.New("the section is gone") }
	_, err := controlplane.New("test").Storage(memory.Store{}).With(authz.Config{ConfigFile: file, Read: broken}).Build()
	if err == nil || !strings.Contains(err.Error(), `part "authz.Config": field ConfigFile: the section is gone`) {
		t.Errorf("Build without the section: %v", err)
	}
}

// TestConfigLists: the rules of roles are known, and that there may be more.
func TestConfigLists(t *testing.T) {
	t.Parallel()
	r := newReviewer(t, opinions())
	for name, tc := range map[string]struct {
		content    string
		incomplete bool
	}{
		"RBAC":          {configuration(entryRBAC), false},
		"webhook, RBAC": {configuration(entryWebhook("policy", r.kubeconfig(t)), entryRBAC), true},
	} {
		config, _ := run(t, memory.Store{}, bound(authz.Config{ConfigFile: configFile(t, tc.content)})...)
		bind(t, as(t, config, ""), "default", "view", "alice")
		bind(t, as(t, config, ""), "", "system:basic-user", "alice")
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}
		until(t, name, func() bool {
			got, err := as(t, config, "alice").AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
			return err == nil && got.Status.Incomplete == tc.incomplete && strings.Contains(fmt.Sprint(got.Status.ResourceRules), "configmaps")
		})
	}
}

// TestConfigFile are the errors of Build.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	good := newReviewer(t, nil).kubeconfig(t)
	open := newReviewer(t, nil).kubeconfig(t)
	if err := os.Chmod(open, 0o640|0o004); err != nil {
		t.Fatal(err)
	}
	of := func(kind string) string { return configuration("- {type: " + kind + ", name: x}\n") }
	const only = " is not supported, only RBAC and Webhook: "
	cases := map[string]struct{ reason, content, want string }{
		"empty":       {"nobody would be allowed anything", "", "authorizers: Required value: at least one"},
		"none":        {"the same", configuration(), "authorizers: Required value: at least one"},
		"kind":        {"another configuration", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n", "AuthenticationConfiguration"},
		"version":     {"there is none", strings.Replace(configuration(entryRBAC), "v1", "v9", 1), "no kind"},
		"field":       {"a typing error", configuration("- {type: RBAC, nam: x}\n"), `unknown field "authorizers[0].nam"`},
		"node":        {"there are no nodes", of("Node"), `authorizers[0].type: "Node"` + only + "there are no nodes, remove it"},
		"ABAC":        {"there is no policy file", of("ABAC"), `authorizers[0].type: "ABAC"` + only + "write roles, or a function with authz.Func"},
		"always":      {"not open to all", of("AlwaysAllow"), `authorizers[0].type: "AlwaysAllow"` + only + "bind a group to the ClusterRole cluster-admin"},
		"never":       {"it is so", of("AlwaysDeny"), `authorizers[0].type: "AlwaysDeny"` + only + "requests that nothing allows are denied anyway"},
		"unknown":     {"a typing error", of("RBCA"), `authorizers[0].type: "RBCA"` + only + "there is no such type"},
		"no type":     {"a mistake", configuration("- {name: x}\n"), "authorizers[0].type: Required value"},
		"no name":     {"metrics have it", configuration("- {type: RBAC}\n"), "authorizers[0].name: Required value"},
		"RBAC twice":  {"once is enough", configuration(entryRBAC, "- {type: RBAC, name: more}\n"), `authorizers[1].type: Duplicate value: "RBAC"`},
		"names":       {"metrics would mix them up", configuration(entryWebhook("a", good), entryWebhook("a", good)), `authorizers[1].name: Duplicate value: "a"`},
		"webhook":     {"nobody to ask", configuration("- {type: Webhook, name: a}\n"), "authorizers[0].webhook: Required value"},
		"in cluster":  {"there is none", strings.Replace(configuration(entryWebhook("a", good)), "type: KubeConfigFile, kubeConfigFile: "+good, "type: InClusterConfig", 1), "authorizers[0].webhook.connectionInfo.type: InClusterConfig is not supported, use KubeConfigFile"},
		"relative":    {"relative to what", configuration(entryWebhook("a", "x")), "must be an absolute path"},
		"missing":     {"it is not there", configuration(entryWebhook("a", "/none")), "authorizers[0].connectionInfo.kubeConfigFile: Invalid value"},
		"mode":        {"everybody may read the credentials", configuration(entryWebhook("a", open)), "authorizers[0].webhook.connectionInfo.kubeConfigFile: " + open + ": every user of this machine has permissions on it (mode 0644)"},
		"condition":   {"not CEL", configuration(entryWebhook("a", good, "matchConditions: [{expression: 'request.user =='}]")), "authorizers[0].matchConditions[0].expression: Invalid value"},
		"all at once": {"one run shows all", configuration("- {type: Node, name: x}\n", "- {type: RBAC}\n"), "authorizers[1].name: Required value"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := configFile(t, tc.content)
			_, err := controlplane.New("test").Storage(memory.Store{}).With(authz.Config{ConfigFile: file}).Build()
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), `part "authz.Config": field ConfigFile: `+file) {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
	file := configFile(t, configuration(entryRBAC))
	parts := map[string]struct {
		reason string
		parts  []controlplane.Part
		want   string
	}{
		"no file": {"there is no default", []controlplane.Part{authz.Config{}}, "field ConfigFile: is empty"},
		"missing": {"it is not there", []controlplane.Part{authz.Config{ConfigFile: "none"}}, "field ConfigFile: open none"},
		"twice":   {"roles are looked after once", []controlplane.Part{authz.RBAC{}, authz.Config{ConfigFile: file}}, `part "authz.Config": work "clusterrole-aggregation": part "authz.RBAC" already has one with that name`},
	}
	for name, tc := range parts {
		_, err := controlplane.New("test").Storage(memory.Store{}).With(tc.parts...).Build()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: %v, want %s", name, tc.reason, err, tc.want)
		}
	}
}
