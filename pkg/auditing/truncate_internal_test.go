package auditing

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// long is an event whose every field has n bytes and more of a text.
func long(text string, n int) *auditinternal.Event {
	s := strings.Repeat(text, n/len(text)+1)
	who := authnv1.UserInfo{Username: s, UID: s, Groups: []string{"a", s}, Extra: map[string]authnv1.ExtraValue{}}
	e := &auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: types.UID(s), RequestURI: s, Verb: s, User: who, ImpersonatedUser: &who,
		SourceIPs: []string{s}, UserAgent: s, Annotations: map[string]string{"a": s},
		ObjectRef: &auditinternal.ObjectReference{
			Resource: s, Namespace: s, Name: s, UID: types.UID(s), APIGroup: s, APIVersion: s, ResourceVersion: s, Subresource: s,
		},
		ResponseStatus: &metav1.Status{Message: s, Reason: metav1.StatusReason(s), Details: &metav1.StatusDetails{
			Name: s, Group: s, Kind: s, UID: types.UID(s), Causes: []metav1.StatusCause{{Type: metav1.CauseType(s), Message: s, Field: s}},
		}},
	}
	for i := range n / 10 {
		who.Groups = append(who.Groups, fmt.Sprint("group-", i))
		who.Extra[fmt.Sprint("extra-", i)] = []string{"", s[:10]}
		e.SourceIPs = append(e.SourceIPs, "10.1.1.1")
		e.Annotations[fmt.Sprint("note-", i)] = s[:10]
		e.ResponseStatus.Details.Causes = append(e.ResponseStatus.Details.Causes, metav1.StatusCause{Type: "FieldValueInvalid", Message: s[:10], Field: "data"})
	}
	return e
}

// TestBound: a line is no longer than its bound, whatever is in the event, and says
// what was cut. The event itself is that of the request, and stays.
func TestBound(t *testing.T) {
	t.Parallel()
	body := func(n int) *runtime.Unknown {
		return &runtime.Unknown{Raw: []byte(`{"a":"` + strings.Repeat("a", n) + `"}`), ContentType: runtime.ContentTypeJSON}
	}
	withBody := func(e *auditinternal.Event, n int) *auditinternal.Event {
		e.Level, e.ResponseObject = auditinternal.LevelRequestResponse, body(n)
		return e
	}
	invalid := long("a", 1)
	invalid.RequestURI = "/api/v1/namespaces/default/configmaps"
	invalid.ResponseStatus.Message = strings.Repeat("data: Invalid value ", 25_000)
	cases := map[string]struct {
		reason string
		event  *auditinternal.Event
		bound  bound
		most   int
		want   []string // of the annotation; nil: there is none
	}{
		"small":            {"nothing is cut", long("a", 1), 0, plainEvent, nil},
		"just small":       {"nothing is cut", long("a", 100), 0, plainEvent, nil},
		"long message":     {"an invalid object is answered with every mistake in it", invalid, 0, plainEvent, []string{"responseStatus.message 500000"}},
		"everything":       {"each field is cut", long("a", 20_000), 0, plainEvent, []string{"requestURI 20001", "user.groups", "annotations", "verb"}},
		"escapes":          {"six bytes are written for one", long("<", 10_000), 0, plainEvent, []string{"requestURI"}},
		"not UTF-8":        {"what is no character is written as one", long("\xff", 10_000), 0, plainEvent, []string{"requestURI"}},
		"smallest":         {"the smallest bound holds too", long("<", 10_000), leastEvent, leastEvent, []string{"requestURI"}},
		"body":             {"a body has more room", withBody(long("a", 1), 90_000), 0, bodyEvent, nil},
		"large body":       {"a body is left out whole", withBody(long("a", 1), 200_000), 0, plainEvent, []string{"responseObject 200008"}},
		"body and message": {"without the body it is an event without one", withBody(long("a", 20_000), 200_000), 0, plainEvent, []string{"responseObject 200008, ", "requestURI 20001"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := tc.event.DeepCopy()
			b := newBook(Log{MaxEvent: int(tc.bound)}, JSON)
			line, err := b.line(tc.event)
			if err != nil {
				t.Fatal(err)
			}
			if len(line) > tc.most {
				t.Errorf("%s: the line has %d bytes, want at most %d", tc.reason, len(line), tc.most)
			}
			var e auditv1.Event
			if err := json.Unmarshal(line, &e); err != nil || e.Kind != "Event" {
				t.Fatalf("%s: the line is no event: %v: %s", tc.reason, err, line)
			}
			got, cut := e.Annotations[truncatedNote]
			if cut != (tc.want != nil) || slices.ContainsFunc(tc.want, func(w string) bool { return !strings.Contains(got, w) }) {
				t.Errorf("%s: got annotation %q, want %q in it", tc.reason, got, tc.want)
			}
			if tc.want != nil && tc.event.ResponseObject == nil && e.RequestURI == "" {
				t.Errorf("%s: nothing of the URI is left", tc.reason)
			}
			if !jsonEqual(t, before, tc.event) {
				t.Errorf("%s: the event of the request was changed", tc.reason)
			}
		})
	}
}

func jsonEqual(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return string(x) == string(y)
}
