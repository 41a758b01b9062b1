package auditing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

const (
	// plainEvent bounds an event without bodies, and bodyEvent one with them: the
	// latter as kube-apiserver's --audit-log-truncate-max-event-size.
	plainEvent = 8 << 10
	bodyEvent  = 100 << 10
	// leastEvent is the smallest bound that every event can be cut to.
	leastEvent = 4 << 10
	// frame is what the names of an event's fields and its times take.
	frame = 800
	// truncatedNote is the annotation that names what was cut, and its bytes.
	truncatedNote = "audit.sailplane.dev/truncated"
)

// bound is how many bytes an event may have; 0: the defaults.
type bound int

// check refuses what some event cannot be cut to.
func (b bound) check() error {
	if b != 0 && b < leastEvent {
		return fmt.Errorf("MaxEvent is %d: want %d or more, or 0 for the default", b, leastEvent)
	}
	return nil
}

// of is the bound of an event.
func (b bound) of(e *auditinternal.Event) int {
	if b == 0 && (e.RequestObject != nil || e.ResponseObject != nil) {
		return bodyEvent
	}
	return b.plain()
}

// plain is the bound of an event without bodies.
func (b bound) plain() int { return cmp.Or(int(b), plainEvent) }

// fit returns the event, or a copy that is cut to about that many bytes: first its
// bodies are left out, then long fields are cut, evenly. Of an event that is not too
// large nothing is copied.
func (b bound) fit(e *auditinternal.Event, most int) *auditinternal.Event {
	if weigh(e)+frame <= most {
		return e
	}
	c := &cutter{}
	whole := *e
	c.body("requestObject", len(raw(e.RequestObject)))
	c.body("responseObject", len(raw(e.ResponseObject)))
	whole.RequestObject, whole.ResponseObject = nil, nil
	if len(c.cuts) > 0 {
		most = min(most, b.of(&whole))
	}
	bodies := c.cuts
	cut := whole
	for divisor := 1; weigh(&cut)+frame > most && divisor <= 64; divisor *= 2 {
		c = &cutter{divisor: divisor, cuts: slices.Clone(bodies)}
		cut = whole
		c.event(&cut)
	}
	cut.Annotations = maps.Clone(cut.Annotations)
	if cut.Annotations == nil {
		cut.Annotations = map[string]string{}
	}
	if e.Annotations[truncatedNote] == "" { // or it was cut before it was held
		cut.Annotations[truncatedNote] = strings.Join(c.cuts, ", ")
	}
	return &cut
}

// weigh is how many bytes an event has that a caller decides on.
func weigh(e *auditinternal.Event) int {
	n := len(e.AuditID) + len(e.RequestURI) + len(e.Verb) + len(e.UserAgent) + size(e.SourceIPs) + weighUser(&e.User)
	if e.ImpersonatedUser != nil {
		n += weighUser(e.ImpersonatedUser)
	}
	if r := e.ObjectRef; r != nil {
		n += len(r.Resource) + len(r.Namespace) + len(r.Name) + len(r.UID) + len(r.APIGroup) + len(r.APIVersion) +
			len(r.ResourceVersion) + len(r.Subresource)
	}
	if s := e.ResponseStatus; s != nil {
		n += len(s.Message) + len(s.Reason) + weighDetails(s.Details)
	}
	for k, v := range e.Annotations {
		n += len(k) + len(v) + 6
	}
	return n + len(raw(e.RequestObject)) + len(raw(e.ResponseObject))
}

func weighUser(u *authnv1.UserInfo) int {
	n := len(u.Username) + len(u.UID) + size(u.Groups)
	for k, v := range u.Extra {
		n += len(k) + size(v) + 6
	}
	return n
}

func weighDetails(d *metav1.StatusDetails) int {
	if d == nil {
		return 0
	}
	n := len(d.Name) + len(d.Group) + len(d.Kind) + len(d.UID)
	for _, c := range d.Causes {
		n += len(c.Type) + len(c.Message) + len(c.Field) + 40
	}
	return n
}

func size[S ~[]string](list S) int {
	n := 0
	for _, s := range list {
		n += len(s) + 3
	}
	return n
}

// raw is a recorded body; nil when there is none.
func raw(body *runtime.Unknown) []byte {
	if body == nil {
		return nil
	}
	return body.Raw
}

// cutter cuts the fields of an event, and notes which were longer.
type cutter struct {
	divisor int
	cuts    []string
}

func (c *cutter) note(name string, size int) {
	c.cuts = append(c.cuts, fmt.Sprintf("%s %d", name, size))
}

func (c *cutter) body(name string, size int) {
	if size > 0 {
		c.note(name, size)
	}
}

// event cuts what is long in a shallow copy of an event.
func (c *cutter) event(e *auditinternal.Event) {
	e.AuditID = cutText(c, "auditID", e.AuditID, 64)
	e.Verb = cutText(c, "verb", e.Verb, 64)
	e.RequestURI = cutText(c, "requestURI", e.RequestURI, 1024)
	e.UserAgent = cutText(c, "userAgent", e.UserAgent, 256)
	if n := size(e.SourceIPs); n > 512/c.divisor && len(e.SourceIPs) > 2 {
		// All but the last are what the caller says.
		c.note("sourceIPs", n)
		e.SourceIPs = []string{short(e.SourceIPs[0], 64), short(e.SourceIPs[len(e.SourceIPs)-1], 64)}
	}
	c.user("user", &e.User)
	if e.ImpersonatedUser != nil {
		u := *e.ImpersonatedUser
		c.user("impersonatedUser", &u)
		e.ImpersonatedUser = &u
	}
	if e.ObjectRef != nil {
		r := *e.ObjectRef
		for _, f := range []struct {
			name string
			text *string
		}{
			{"resource", &r.Resource},
			{"namespace", &r.Namespace},
			{"name", &r.Name},
			{"apiGroup", &r.APIGroup},
			{"apiVersion", &r.APIVersion},
			{"resourceVersion", &r.ResourceVersion},
			{"subresource", &r.Subresource},
		} {
			*f.text = cutText(c, "objectRef."+f.name, *f.text, 256)
		}
		r.UID = cutText(c, "objectRef.uid", r.UID, 64)
		e.ObjectRef = &r
	}
	c.status(e)
	e.Annotations = cutMap(c, "annotations", e.Annotations, func(v string, most int) string { return short(v, most) },
		func(v string) int { return len(v) })
}

func (c *cutter) user(name string, u *authnv1.UserInfo) {
	u.Username = cutText(c, name+".username", u.Username, 256)
	u.UID = cutText(c, name+".uid", u.UID, 128)
	if n := size(u.Groups); n > 2048/c.divisor {
		c.note(name+".groups", n)
		u.Groups = cutList(u.Groups, 2048/c.divisor)
	}
	u.Extra = cutMap(c, name+".extra", u.Extra, func(v authnv1.ExtraValue, most int) authnv1.ExtraValue { return cutList(v, most) },
		func(v authnv1.ExtraValue) int { return size(v) })
}

// status cuts what the answer said.
func (c *cutter) status(e *auditinternal.Event) {
	if e.ResponseStatus == nil {
		return
	}
	s := *e.ResponseStatus
	s.Message = cutText(c, "responseStatus.message", s.Message, 1024)
	s.Reason = cutText(c, "responseStatus.reason", s.Reason, 128)
	if n := weighDetails(s.Details); n > 1024/c.divisor {
		c.note("responseStatus.details", n)
		d := &metav1.StatusDetails{
			Name: short(s.Details.Name, 256/c.divisor), Group: short(s.Details.Group, 256/c.divisor),
			Kind: short(s.Details.Kind, 256/c.divisor),
		}
		for _, cause := range s.Details.Causes {
			if weighDetails(d)+weighDetails(&metav1.StatusDetails{Causes: []metav1.StatusCause{cause}}) > 1024/c.divisor {
				break
			}
			d.Causes = append(d.Causes, cause)
		}
		s.Details = d
	}
	e.ResponseStatus = &s
}

// cutText is the text, or as much of it as it may have.
func cutText[T ~string](c *cutter, name string, text T, most int) T {
	if most /= c.divisor; len(text) <= most {
		return text
	}
	c.note(name, len(text))
	return T(short(string(text), most))
}

// short is the beginning of a text, of whole characters.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "\uFFFD")
}

// cutList is as many whole elements as fit, or the beginning of the first.
func cutList[S ~[]string](list S, most int) S {
	n := 0
	for i, s := range list {
		if n += len(s) + 3; n > most {
			return append(slices.Clone(list[:i]), short(s, max(0, most-n+len(s))))
		}
	}
	return list
}

// cutMap is as many entries as fit, in the order of their names, with values that are cut.
func cutMap[V any](c *cutter, name string, m map[string]V, cut func(V, int) V, size func(V) int) map[string]V {
	total := 0
	for k, v := range m {
		total += len(k) + size(v) + 6
	}
	most := 2048 / c.divisor
	if total <= most {
		return m
	}
	c.note(name, total)
	kept, n := map[string]V{}, 0
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := cut(m[k], 512/c.divisor)
		if n += len(k) + size(v) + 6; n > most {
			break
		}
		kept[k] = v
	}
	return kept
}

// cutting is a back end that gets events which are cut: before they are held in a
// buffer, and before they are sent.
type cutting struct {
	audit.Backend
	bound bound
}

// ProcessEvents implements audit.Sink.
func (c cutting) ProcessEvents(events ...*auditinternal.Event) bool {
	fitting := make([]*auditinternal.Event, len(events))
	for i, e := range events {
		fitting[i] = c.bound.fit(e, c.bound.of(e))
	}
	return c.Backend.ProcessEvents(fitting...)
}
