package storageapi

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const day = 24 * time.Hour

// mustSecret is the Secret that clientSecret wants.
func mustSecret(t *testing.T, old *corev1.Secret, s *v1alpha1.EtcdStorage, a *authority, now time.Time) (*corev1.Secret, time.Time) {
	t.Helper()
	want, due, err := clientSecret(old, s, a, now)
	if err != nil || want == nil {
		t.Fatalf("got %v, %v", want, err)
	}
	return want, due
}

func rotated(after time.Duration) func(*v1alpha1.EtcdStorage) {
	return func(s *v1alpha1.EtcdStorage) { s.Spec.RotateAfter = &metav1.Duration{Duration: after} }
}

// TestClientSecret: the first one says what it was made for, and has what an API server connects with.
func TestClientSecret(t *testing.T) {
	t.Parallel()
	a, s := newTestAuthority(t), flunders()
	made, due := mustSecret(t, nil, s, a, epoch())
	if want := epoch().Add(30 * day); !due.Equal(want) {
		t.Errorf("due at %v, not %v", due, want)
	}
	certs := parsed(t, made.Data["tls.crt"])
	if id, err := identify(certs, []*x509.Certificate{a.cert}, epoch()); err != nil || id != (tenantID{"flunders", "d2a5"}) {
		t.Errorf("it is for %v, %v", id, err)
	}
	if want := epoch().Add(90 * day); !certs[0].NotAfter.Equal(want) {
		t.Errorf("it ends at %v, not %v", certs[0].NotAfter, want)
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "wardle", Name: "etcd-client",
			Labels:      map[string]string{"storage.sailplane.dev/etcd-storage": "flunders"},
			Annotations: map[string]string{"storage.sailplane.dev/etcd-storage-uid": "d2a5"},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": made.Data["tls.crt"], "tls.key": made.Data["tls.key"]},
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	short, _ := mustSecret(t, nil, flunders(rotated(10*time.Minute)), a, epoch())
	if got, want := parsed(t, short.Data["tls.crt"])[0].NotAfter, epoch().Add(day); !got.Equal(want) {
		t.Errorf("with the shortest rotation it ends at %v, not %v", got, want)
	}
}

// TestClientSecretIsKept: a certificate is replaced when it is old or wrong, and not before; what users
// added stays.
func TestClientSecretIsKept(t *testing.T) {
	t.Parallel()
	a, other := newTestAuthority(t), newTestAuthority(t)
	end := a.cert.NotAfter.Sub(epoch())
	cases := map[string]struct {
		signed time.Duration // after the epoch
		later  time.Duration // after that
		change func(*corev1.Secret)
		spec   time.Duration // what rotateAfter is now; 0: 720h, as before
		by     *authority    // the authority now; nil: as before
		due    time.Duration // after it was signed; 0: it is replaced
	}{
		"at once":               {due: 30 * day},
		"a moment before":       {later: 30*day - time.Second, due: 30 * day},
		"at its age":            {later: 30 * day},
		"a server's slow clock": {later: -time.Minute, due: 30 * day},
		"users' data": {due: 30 * day, change: func(s *corev1.Secret) {
			s.Labels["team"], s.Annotations["note"], s.Data["more"] = "a", "b", []byte("c")
		}},
		"another authority":      {by: other},
		"no data":                {change: func(s *corev1.Secret) { s.Data = nil }},
		"no key":                 {change: func(s *corev1.Secret) { delete(s.Data, "tls.key") }},
		"another key":            {change: func(s *corev1.Secret) { _, s.Data["tls.key"], _ = a.sign(wardle(), time.Hour, epoch()) }},
		"garbage":                {change: func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("garbage") }},
		"another's certificate":  {change: func(s *corev1.Secret) { s.Data["tls.crt"], s.Data["tls.key"], _ = a.sign(wardle(), time.Hour, epoch()) }},
		"sooner from now on":     {later: 2 * time.Hour, spec: time.Hour},
		"later from now on":      {later: 2 * time.Hour, spec: 8760 * time.Hour, due: 60 * day},
		"before it ends":         {later: 60 * day, spec: 8760 * time.Hour},
		"the authority ends":     {signed: end - 15*day, later: 14 * day, due: 15 * day},
		"the authority ends now": {signed: end - 45*day, later: 29 * day, due: 30 * day},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, signed := flunders(), epoch().Add(c.signed)
			old, _ := mustSecret(t, nil, s, a, signed)
			if c.change != nil {
				c.change(old)
			}
			if c.spec != 0 {
				rotated(c.spec)(s)
			}
			by := a
			if c.by != nil {
				by = c.by
			}
			before := old.DeepCopy()
			want, due, err := clientSecret(old, s, by, signed.Add(c.later))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, old); diff != "" {
				t.Errorf("the old one was changed:\n%s", diff)
			}
			if c.due != 0 {
				if want != nil || !due.Equal(signed.Add(c.due)) {
					t.Errorf("got %v, due after %v", want, due.Sub(signed))
				}
				return
			}
			if want == nil {
				t.Fatalf("it is kept until %v", due)
			}
			if again, at, err := clientSecret(want, s, by, signed.Add(c.later)); again != nil || err != nil || !at.Equal(due) {
				t.Errorf("what was written is not right: %v at %v, not %v: %v", again, at, due, err)
			}
		})
	}
	// What users added is in the next one, too.
	s := flunders()
	old, _ := mustSecret(t, nil, s, a, epoch())
	cases["users' data"].change(old)
	next, _ := mustSecret(t, old, s, a, epoch().Add(30*day))
	old.Data["tls.crt"], old.Data["tls.key"] = next.Data["tls.crt"], next.Data["tls.key"]
	if diff := cmp.Diff(old, next); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTaken: what was not made for the EtcdStorage is never overwritten, whatever is in it.
func TestTaken(t *testing.T) {
	t.Parallel()
	a, s := newTestAuthority(t), flunders()
	ca, _, err := newTestAuthority(t).encode()
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := mustSecret(t, nil, s, a, epoch())
	authority, _, err := authorityConfigMap(nil, s, ca, epoch())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(*metav1.ObjectMeta){
		"nobody's":         func(m *metav1.ObjectMeta) { m.Labels, m.Annotations = nil, nil },
		"no label":         func(m *metav1.ObjectMeta) { m.Labels = nil },
		"no annotation":    func(m *metav1.ObjectMeta) { m.Annotations = nil },
		"another's":        func(m *metav1.ObjectMeta) { m.Labels[v1alpha1.LabelEtcdStorage] = "other" },
		"an earlier one's": func(m *metav1.ObjectMeta) { m.Annotations[v1alpha1.AnnotationUID] = "earlier" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, authority := secret.DeepCopy(), authority.DeepCopy()
			change(&secret.ObjectMeta)
			change(&authority.ObjectMeta)
			if want, _, err := clientSecret(secret, s, a, epoch().Add(100*day)); !errors.Is(err, errTaken) || want != nil {
				t.Errorf("secret: %v, %v", want, err)
			}
			if want, _, err := authorityConfigMap(authority, s, ca, epoch()); !errors.Is(err, errTaken) || want != nil {
				t.Errorf("config map: %v, %v", want, err)
			}
		})
	}
	opaque := secret.DeepCopy()
	opaque.Type = corev1.SecretTypeOpaque
	if want, _, err := clientSecret(opaque, s, a, epoch()); !errors.Is(err, errTaken) || want != nil {
		t.Errorf("a type that cannot be changed: %v, %v", want, err)
	}
}

// TestAuthorityConfigMap: authorities stay for 30 days after they were current, and only those that this
// server wrote.
func TestAuthorityConfigMap(t *testing.T) {
	t.Parallel()
	s := flunders()
	var ca [3]string
	for i := range ca {
		content, _, err := newTestAuthority(t).encode()
		if err != nil {
			t.Fatal(err)
		}
		ca[i] = string(content)
	}
	steps := []struct {
		reason  string
		after   time.Duration // after the epoch
		change  func(*corev1.ConfigMap)
		current string
		want    string
		same    bool          // nothing is written
		due     time.Duration // after the epoch; 0: never
	}{
		{reason: "the first", current: ca[0], want: ca[0]},
		{reason: "nothing changed", after: day, current: ca[0], want: ca[0], same: true},
		{reason: "a successor", after: 2 * day, current: ca[1], want: ca[1] + ca[0], due: 32 * day},
		{reason: "nothing changed", after: 3 * day, current: ca[1], want: ca[1] + ca[0], same: true, due: 32 * day},
		{reason: "another", after: 4 * day, current: ca[2], want: ca[2] + ca[1] + ca[0], due: 32 * day},
		{reason: "one is back", after: 5 * day, current: ca[0], want: ca[0] + ca[2] + ca[1], due: 34 * day},
		{reason: "a moment before", after: 34*day - time.Second, current: ca[0], want: ca[0] + ca[2] + ca[1], same: true, due: 34 * day},
		{reason: "30 days later", after: 34 * day, current: ca[0], want: ca[0] + ca[2], due: 35 * day},
		{reason: "users' data", after: 34 * day, current: ca[0], want: ca[0] + ca[2], same: true, due: 35 * day, change: func(m *corev1.ConfigMap) {
			m.Labels["team"], m.Annotations["note"], m.Data["more"] = "a", "b", "c"
		}},
		{reason: "one that somebody put there", after: 34 * day, current: ca[0], want: ca[0] + ca[2], due: 35 * day, change: func(m *corev1.ConfigMap) {
			m.Data["ca.crt"] += ca[1]
		}},
		{reason: "the last one leaves", after: 35 * day, current: ca[0], want: ca[0]},
		{reason: "two are current, one of them twice", after: 36 * day, current: ca[1] + ca[2] + ca[1], want: ca[1] + ca[2] + ca[0], due: 66 * day},
		{reason: "garbage", after: 36 * day, current: ca[1], want: ca[1], change: func(m *corev1.ConfigMap) {
			m.Data["ca.crt"], m.Annotations[v1alpha1.AnnotationAuthorities] = "garbage", "garbage"
		}},
		{reason: "it is emptied", after: 36 * day, current: ca[1], want: ca[1], change: func(m *corev1.ConfigMap) {
			m.Data, m.BinaryData = nil, map[string][]byte{"ca.crt": []byte("a")}
		}},
		{reason: "a successor after that", after: 37 * day, current: ca[0], want: ca[0] + ca[1], due: 67 * day},
		{reason: "a date that somebody wrote", after: 38 * day, current: ca[0], want: ca[0] + ca[1], due: 68 * day, change: func(m *corev1.ConfigMap) {
			m.Annotations[v1alpha1.AnnotationAuthorities] = fmt.Sprintf(`{%q: "2035-01-01T00:00:00Z"}`, fingerprint(parsed(t, []byte(ca[1]))[0]))
		}},
	}
	var old *corev1.ConfigMap
	for _, step := range steps {
		if step.change != nil {
			step.change(old)
		}
		before := old.DeepCopy()
		want, due, err := authorityConfigMap(old, s, []byte(step.current), epoch().Add(step.after))
		if err != nil || (want == nil) != step.same {
			t.Fatalf("%s: got %v, %v", step.reason, want, err)
		}
		if diff := cmp.Diff(before, old); diff != "" {
			t.Errorf("%s: the old one was changed:\n%s", step.reason, diff)
		}
		if want != nil {
			old = want
		}
		if diff := cmp.Diff(step.want, old.Data["ca.crt"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
		if at := epoch().Add(step.due); !due.Equal(at) && (step.due != 0 || !due.IsZero()) {
			t.Errorf("%s: due at %v, not %v", step.reason, due, at)
		}
		if len(old.BinaryData) > 0 {
			t.Errorf("%s: %v", step.reason, old.BinaryData)
		}
	}
	if old.Namespace != "wardle" || old.Name != "etcd-ca" || old.Labels["team"] != "a" || old.Annotations["note"] != "b" {
		t.Errorf("at the end: %+v", old.ObjectMeta)
	}
	for _, current := range []string{"", "garbage"} {
		if want, _, err := authorityConfigMap(old, s, []byte(current), epoch()); err == nil || want != nil {
			t.Errorf("authorities %q: %v, %v", current, want, err)
		}
	}
}

// TestAuthorityConfigMapIsBounded: of many authorities those stay that were current last, and always
// those that are; none stays after its own end or because somebody dated it.
func TestAuthorityConfigMapIsBounded(t *testing.T) {
	t.Parallel()
	s, a := flunders(), newTestAuthority(t)
	var all []*x509.Certificate
	for i := range mostAuthorities + 4 {
		all = append(all, leaf(t, newKey(t), a.cert, a.key, func(c *x509.Certificate) {
			c.NotAfter = epoch().Add(365 * day)
			if i == 0 {
				c.NotAfter = epoch().Add(7 * day)
			}
		}))
	}
	var m *corev1.ConfigMap
	write := func(now time.Time, current ...*x509.Certificate) {
		t.Helper()
		var content []byte
		for _, cert := range current {
			content = append(content, encodeCertificate(cert.Raw)...)
		}
		want, _, err := authorityConfigMap(m, s, content, now)
		if err != nil || want == nil {
			t.Fatalf("got %v, %v", want, err)
		}
		m = want
	}
	has := func(what string, want ...*x509.Certificate) {
		t.Helper()
		var content string
		for _, cert := range want {
			content += string(encodeCertificate(cert.Raw))
		}
		if diff := cmp.Diff(content, m.Data["ca.crt"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		var dates map[string]string
		if err := json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationAuthorities]), &dates); err != nil || len(dates) != len(want) {
			t.Errorf("%s: %d dates, %v", what, len(dates), err)
		}
	}
	write(epoch(), all[0])
	write(epoch().Add(time.Second), all[1])
	has("one that ends in 7 days", all[1], all[0])
	m.Annotations[v1alpha1.AnnotationAuthorities] = fmt.Sprintf(`{%q: "", %q: "2100-01-01T00:00:00Z"}`, fingerprint(all[1]), fingerprint(all[0]))
	write(epoch().Add(7*day), all[2])
	has("it has ended", all[2], all[1])

	for i := 3; i < len(all); i++ {
		write(epoch().Add(7*day+time.Duration(i)*time.Second), all[i])
	}
	var last []*x509.Certificate
	for i := len(all) - 1; len(last) < mostAuthorities; i-- {
		last = append(last, all[i])
	}
	has("one after the other", last...)
	write(epoch().Add(8*day), all[1:]...)
	has("all at once", all[1:]...)
}
