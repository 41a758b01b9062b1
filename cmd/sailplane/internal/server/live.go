package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// Live is the configuration of a server, some fields of which change while it runs.
type Live struct {
	now atomic.Pointer[config.Server]
	// Follow says that it may change: parts look at it again and again.
	follow bool
}

// NewLive returns a configuration that [Live.Change] may change, if follow says so.
func NewLive(c *config.Server, follow bool) *Live {
	l := &Live{follow: follow}
	l.now.Store(c)
	return l
}

// Change puts those changes into effect that need no restart, or returns why the
// configuration cannot be. It returns the fields that it changed, and those that
// wait for a restart.
func (l *Live) Change(to *config.Server, at func(field string) string) (now, later []string, err error) {
	b := newBuild(NewLive(to, false), at)
	b.parts()
	if err := errors.Join(b.errs...); err != nil {
		return nil, nil, err
	}
	next, now, later := l.now.Load().Change(to)
	l.now.Store(next)
	return now, later, nil
}

// What may come at once where the configuration does not say: that of so many seconds.
const (
	burstSeconds      = 20
	writeBurstSeconds = 32
)

// limits are those of users and objects, as they are now.
func (l *Live) limits() fairness.Limits {
	c := l.now.Load().Limits
	return fairness.Limits{
		Mode:              fairness.Mode(c.Mode),
		RequestsPerSecond: c.RequestsPerSecond, Burst: cmp.Or(c.Burst, int(min(c.RequestsPerSecond*burstSeconds, math.MaxInt32))),
		RequestsAtOncePerUser: c.RequestsAtOnce, WatchesPerUser: c.Watches,
		WriteBytesPerSecond: int(c.WriteRate.Value()),
		WriteBurstBytes:     int(cmp.Or(c.WriteBurst.Value(), c.WriteRate.Value()*writeBurstSeconds)),
		NamespaceFactor:     c.NamespaceFactor,
		ObjectBytes:         int(c.ObjectSize.Value()), ObjectsPerResource: c.ObjectsPerResource,
		StoredBytesPerNamespace: int(c.StoredSize.Value()), StoredBytesPerUser: int(c.StoredSizePerUser.Value()),
	}
}

// issuers is field jwt as the file that it stands for.
func (l *Live) issuers(string) ([]byte, error) {
	return json.Marshal(apiserverv1.AuthenticationConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "AuthenticationConfiguration"},
		JWT:      l.now.Load().Authentication.JWT,
	})
}

// authorizers is field authorizers as the file that it stands for.
func (l *Live) authorizers(string) ([]byte, error) {
	return json.Marshal(apiserverv1.AuthorizationConfiguration{
		TypeMeta:    metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "AuthorizationConfiguration"},
		Authorizers: l.now.Load().Authorization.Authorizers,
	})
}
