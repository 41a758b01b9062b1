package serviceaccount_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestLogIn: a token logs its account in, as long as that is there.
func TestLogIn(t *testing.T) {
	t.Parallel()
	s := serve(t, serviceaccount.Tokens{})
	account := s.account(t, "builder")
	token := s.token(t, "builder", authenticationv1.TokenRequestSpec{})
	got, err := s.whoami(t, token)
	if err != nil {
		t.Fatal(err)
	}
	id := got.Extra["authentication.kubernetes.io/credential-id"]
	if len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("the credential id is %q", id)
	}
	want := authenticationv1.UserInfo{
		Username: "system:serviceaccount:default:builder", UID: string(account.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
		Extra:  map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": id},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who logs in (-want +got):\n%s", diff)
	}
	const issuer = "https://kubernetes.default.svc.cluster.local"
	if r := s.review(t, token); !r.Authenticated || r.User.Username != want.Username || !slices.Equal(r.Audiences, []string{issuer}) {
		t.Errorf("the review says %+v", r)
	}
	accounts := s.CoreV1().ServiceAccounts("default")
	if _, err := s.as(t, token).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an account without roles lists secrets: %v", err)
	}
	ended := func(why string) {
		t.Helper()
		if _, err := s.whoami(t, token); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", why, err)
		}
		if r := s.review(t, token); r.Authenticated || !strings.Contains(r.Error, why) {
			t.Errorf("%s: the review says %+v", why, r)
		}
	}
	if err := accounts.Delete(t.Context(), "builder", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ended("is gone")
	s.account(t, "builder")
	ended("has another UID")
}

// TestRequests: what may be asked for, and what is answered.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, serviceaccount.Tokens{Audiences: []string{"shop", "https://shop.example.com"}, MaxExpiration: 1 << 32 * time.Second})
	account := s.account(t, "builder")
	spec := func(seconds int64, audiences ...string) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: audiences}
	}
	for name, c := range map[string]struct {
		reason    string
		account   string
		request   authenticationv1.TokenRequest
		seconds   int64
		audiences []string
		err       string
	}{
		"nothing": {reason: "there are defaults", seconds: 3600, audiences: []string{"shop", "https://shop.example.com"}},
		"least":   {reason: "10 minutes may be asked for", request: authenticationv1.TokenRequest{Spec: spec(600, "a", "b")}, seconds: 600, audiences: []string{"a", "b"}},
		"most":    {reason: "136 years may be asked for", request: authenticationv1.TokenRequest{Spec: spec(1<<32, "a")}, seconds: 1 << 32, audiences: []string{"a"}},
		"same": {
			reason: "the account may be said again", seconds: 3600, audiences: []string{"shop", "https://shop.example.com"},
			request: authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Name: "builder", Namespace: "default", UID: account.UID}},
		},
		"forged": {
			reason: "the status is the server's", seconds: 600, audiences: []string{"a"},
			request: authenticationv1.TokenRequest{Spec: spec(600, "a"), Status: authenticationv1.TokenRequestStatus{Token: "mine"}},
		},
		"short": {
			reason: "a token lasts 10 minutes", request: authenticationv1.TokenRequest{Spec: spec(599)},
			err: `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`,
		},
		"long": {
			reason: "there is an end", request: authenticationv1.TokenRequest{Spec: spec(1<<32 + 1)},
			err: `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`,
		},
		"negative": {reason: "time goes forward", request: authenticationv1.TokenRequest{Spec: spec(-1)}, err: "less than 10 minutes"},
		"nobody":   {reason: "there is no such account", account: "nobody", err: `serviceaccounts "nobody" not found`},
		"other name": {
			reason: "the path counts", request: authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Name: "root"}},
			err: `TokenRequest.authentication.k8s.io "builder" is invalid: metadata.name: Invalid value: "root": must match the service account name if specified`,
		},
		"other namespace": {
			reason: "the path counts", request: authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system"}},
			err: "the namespace of the provided object does not match the namespace sent on the request",
		},
		"other UID": {
			reason: "another account of that name was meant", request: authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "1"}},
			err: `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "builder": the UID in the token request (1) does not match the UID of the service account (` + string(account.UID) + `)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := c.account
			if of == "" {
				of = "builder"
			}
			before := time.Now().Truncate(time.Second)
			got, err := s.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), of, &c.request, metav1.CreateOptions{})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: %v, want %s", c.reason, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			ends := got.Status.ExpirationTimestamp.Time
			if lasts := time.Duration(c.seconds) * time.Second; ends.Before(before.Add(lasts)) || ends.After(time.Now().Add(lasts)) {
				t.Errorf("%s: it ends at %v", c.reason, ends)
			}
			if got.Name != "builder" || got.Namespace != "default" || got.UID != account.UID || *got.Spec.ExpirationSeconds != c.seconds {
				t.Errorf("%s: %+v", c.reason, got)
			}
			claims := claimsOf(t, got.Status.Token)
			if claims["exp"] != float64(ends.Unix()) {
				t.Errorf("%s: it says that it ends at %v, not %v", c.reason, claims["exp"], ends.Unix())
			}
			if diff := cmp.Diff(c.audiences, got.Spec.Audiences); diff != "" {
				t.Errorf("%s: audiences (-want +got):\n%s", c.reason, diff)
			}
			if r := s.review(t, got.Status.Token, c.audiences...); !r.Authenticated || !slices.Equal(r.Audiences, c.audiences) {
				t.Errorf("%s: the review says %+v", c.reason, r)
			}
		})
	}
}

// TestShortened: a token lasts no longer than the part says, and who asks is warned.
func TestShortened(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason             string
		part               serviceaccount.Tokens
		asked, most, warns int64
	}{
		"given":   {"the field counts, also for what is asked for by default", serviceaccount.Tokens{MaxExpiration: 20 * time.Minute}, 3600, 1200, 1},
		"default": {"a token that nobody looks after ends the next day", serviceaccount.Tokens{}, 1 << 32, 86400, 1},
		"day":     {"a day is not too long", serviceaccount.Tokens{}, 86400, 86400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tc.part)
			s.account(t, "builder")
			result := s.CoreV1().RESTClient().Post().Namespace("default").Resource("serviceaccounts").Name("builder").SubResource("token").
				Param("dryRun", "All").
				Body([]byte(fmt.Sprintf(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": %d}}`, tc.asked))).
				Do(t.Context())
			warnings := result.Warnings()
			body, err := result.Raw()
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", tc.asked, tc.most)
			if int64(len(warnings)) != tc.warns || tc.warns == 1 && warnings[0].Text != want {
				t.Errorf("%s: warnings: %+v", tc.reason, warnings)
			}
			var got authenticationv1.TokenRequest
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			claims := claimsOf(t, got.Status.Token)
			if *got.Spec.ExpirationSeconds != tc.most || claims["exp"].(float64)-claims["iat"].(float64) != float64(tc.most) {
				t.Errorf("%s: it lasts %d s and says %v", tc.reason, *got.Spec.ExpirationSeconds, claims)
			}
			if got.APIVersion != "authentication.k8s.io/v1" || got.Kind != "TokenRequest" {
				t.Errorf("the answer is a %s %s", got.APIVersion, got.Kind)
			}
		})
	}
}

// TestDiscovered: clients find the sub-resource with its own kind.
func TestDiscovered(t *testing.T) {
	t.Parallel()
	list, err := serve(t, serviceaccount.Tokens{}).Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	want := metav1.APIResource{
		Name: "serviceaccounts/token", Namespaced: true, Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest",
		Verbs: metav1.Verbs{"create"},
	}
	at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == want.Name })
	if at < 0 {
		t.Fatalf("not among %v", list.APIResources)
	}
	if diff := cmp.Diff(want, list.APIResources[at]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestBound: a token ends with what it is bound to.
func TestBound(t *testing.T) {
	t.Parallel()
	s := serve(t, serviceaccount.Tokens{})
	s.account(t, "builder")
	core := s.CoreV1()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	pod := &corev1.Pod{ObjectMeta: named("one"), Spec: corev1.PodSpec{
		ServiceAccountName: "builder", NodeName: "away", Containers: []corev1.Container{{Name: "a", Image: "a"}},
	}}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	for kind, c := range map[string]struct {
		reason string
		create func() (types.UID, error)
		remove func() error
		extra  []string
	}{
		"Secret": {
			reason: "it is an object that anybody can make",
			create: func() (types.UID, error) {
				o, err := core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: named("one")}, metav1.CreateOptions{})
				return o.UID, err
			},
			remove: func() error { return core.Secrets("default").Delete(t.Context(), "one", now) },
		},
		"Pod": {
			reason: "a Pod tells its node, which need not be there",
			create: func() (types.UID, error) {
				o, err := core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
				return o.UID, err
			},
			remove: func() error { return core.Pods("default").Delete(t.Context(), "one", now) },
			extra:  []string{"node-name", "pod-name", "pod-uid"},
		},
		"Node": {
			reason: "a Node is in no namespace",
			create: func() (types.UID, error) {
				o, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: named("one")}, metav1.CreateOptions{})
				return o.UID, err
			},
			remove: func() error { return core.Nodes().Delete(t.Context(), "one", now) },
			extra:  []string{"node-name", "node-uid"},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			ref := authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: "one"}
			spec := authenticationv1.TokenRequestSpec{BoundObjectRef: &ref}
			if _, err := s.ask(t, "builder", spec); !apierrors.IsNotFound(err) {
				t.Errorf("bound to nothing: %v", err)
			}
			uid, err := c.create()
			if err != nil {
				t.Fatal(err)
			}
			ref.UID = uid
			token := s.token(t, "builder", spec)
			who, err := s.whoami(t, token)
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			for _, name := range c.extra {
				if v := who.Extra["authentication.kubernetes.io/"+name]; len(v) != 1 || v[0] == "" {
					t.Errorf("%s: %s is %q", c.reason, name, v)
				}
			}
			if len(who.Extra) != 1+len(c.extra) {
				t.Errorf("%s: it has %v", c.reason, who.Extra)
			}
			ref.UID = "1"
			if _, err := s.ask(t, "builder", spec); !apierrors.IsConflict(err) || !strings.Contains(err.Error(),
				"the UID in the bound object reference (1) does not match the UID in record. The object might have been deleted and then recreated") {
				t.Errorf("another object was meant: %v", err)
			}
			for _, after := range []string{"is gone", "has another UID"} {
				if after == "is gone" {
					err = c.remove()
				} else {
					_, err = c.create()
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.whoami(t, token); !apierrors.IsUnauthorized(err) {
					t.Errorf("it %s: %v", after, err)
				}
				if r := s.review(t, token); r.Authenticated || !strings.Contains(r.Error, after) {
					t.Errorf("it %s: the review says %+v", after, r)
				}
			}
		})
	}
}

// TestNotBound: what a token cannot be bound to.
func TestNotBound(t *testing.T) {
	t.Parallel()
	s := serve(t, serviceaccount.Tokens{})
	s.account(t, "builder")
	if _, err := s.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reason string
		ref    authenticationv1.BoundObjectReference
		err    string
	}{
		"kind": {
			"nobody looks whether it is still there",
			authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a"},
			"cannot bind token to object of type /v1, Kind=ConfigMap",
		},
		"group": {
			"it is another Pod",
			authenticationv1.BoundObjectReference{APIVersion: "example.com/v1", Kind: "Pod", Name: "other"},
			"cannot bind token to object of type example.com/v1, Kind=Pod",
		},
		"other's Pod": {
			"it would be revoked with somebody else's Pod",
			authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "other"},
			`cannot bind token for serviceaccount "builder" to pod running with different serviceaccount name.`,
		},
		"no name": {"it is none", authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret"}, "Name parameter required."},
		"path": {
			"it would be read from elsewhere",
			authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "../../nodes/a"},
			`Name parameter invalid: "../../nodes/a": may not contain '/'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.ask(t, "builder", authenticationv1.TokenRequestSpec{BoundObjectRef: &c.ref})
			if !apierrors.IsBadRequest(err) || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", c.reason, err, c.err)
			}
		})
	}
}

// TestAudited: the record says which token was issued, and never the token.
func TestAudited(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	var token string
	t.Run("serve", func(t *testing.T) {
		s := serve(t, serviceaccount.Tokens{}, auditing.Log{Path: file})
		s.account(t, "builder")
		token = s.token(t, "builder", authenticationv1.TokenRequestSpec{})
	})
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), token) {
		t.Error("the log has the token")
	}
	id, _ := claimsOf(t, token)["jti"].(string)
	for line := range strings.Lines(string(content)) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.ObjectRef != nil && e.ObjectRef.Subresource == "token" {
			if got := e.Annotations["authentication.kubernetes.io/issued-credential-id"]; id == "" || got != "JTI="+id {
				t.Errorf("the annotation is %q, the id %q", got, id)
			}
			return
		}
	}
	t.Errorf("no event of the request in:\n%s", content)
}

// TestFields: a part that cannot work says why, before anything starts.
func TestFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		part   serviceaccount.Tokens
		want   string
	}{
		"two places": {"one key signs", serviceaccount.Tokens{KeyFile: "a", Dir: "b"}, "fields KeyFile and Dir: set only one"},
		"http":       {"others fetch keys from there", serviceaccount.Tokens{Issuer: "http://a"}, `field Issuer: "http://a": want an https URL`},
		"user":       {"it is published", serviceaccount.Tokens{Issuer: "https://a:b@c"}, "field Issuer"},
		"query":      {"paths are added to it", serviceaccount.Tokens{Issuer: "https://a?b"}, "field Issuer"},
		"audience":   {"an empty one is nobody's", serviceaccount.Tokens{Audiences: []string{""}}, "field Audiences: an audience is empty"},
		"short":      {"nobody could ask for a token", serviceaccount.Tokens{MaxExpiration: time.Minute}, "give 10m0s or more"},
		"alone":      {"there is nobody to have a token", serviceaccount.Tokens{}, "add core.ServiceAccounts{}"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlplane.New("test").Storage(memory.Store{}).With(c.part).Build()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `part "serviceaccount.Tokens"`) {
				t.Errorf("%s: %v, want %s", c.reason, err, c.want)
			}
		})
	}
}
