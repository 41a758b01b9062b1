package aggregator

import (
	"errors"
	"fmt"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// state is what is known of a server. It does not change: there is a new one when something
// does.
type state struct {
	// err is why the server cannot be used; nil: it can.
	err error
	// since is when the server became usable, or unusable.
	since time.Time
	// latency is how long the last check took.
	latency time.Duration
	// found is what the server said last of its group versions, kept while it is away.
	found map[schema.GroupVersion]apidiscoveryv2.APIVersionDiscovery
	// failed are group versions that APIServices name, and that the server did not answer for.
	failed map[schema.GroupVersion]error
	// documents are the server's OpenAPI v3 documents.
	documents map[string]string // hash by path
}

// errUnchecked is the state of a server that was not asked yet.
var errUnchecked = errors.New("the server was not asked yet")

// available returns why a group version of the server cannot be used; nil when it can.
func (s *state) available(gv schema.GroupVersion) error {
	if s.err != nil {
		return s.err
	}
	if err := s.failed[gv]; err != nil {
		return err
	}
	if _, ok := s.found[gv]; !ok {
		return errUnchecked // its APIService is new
	}
	return nil
}

// reasonOf is the word for an error in condition Available, as in kube-aggregator.
func reasonOf(err error) string {
	var unresolved *controlplane.ServiceError
	if errors.As(err, &unresolved) {
		return unresolved.Reason
	}
	return "FailedDiscoveryCheck"
}

// statusError is an answer that is no success.
type statusError struct {
	url  string
	code int
}

func (e *statusError) Error() string { return fmt.Sprintf("bad status from %s: %d", e.url, e.code) }
