package controlplane

import (
	"cmp"
	"fmt"
	"net/http"
	goruntime "runtime"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// Unlimited as a field of [Limits] limits nothing.
const Unlimited = -1

// Limits bound what one request or one client may cost, whoever sends it. They hold
// for every plane of a server, and not for its own clients. An empty field has the
// default that it names, [Unlimited] is no limit. What users may do, by name and by
// namespace, is limited by fairness.Limits.
type Limits struct {
	// HeaderBytes is how much the header of a request may have, its first line
	// included; what is larger gets 431 or a closed connection. It is enforced where the
	// server listens. Empty: 64 KiB.
	HeaderBytes int
	// URLBytes is how long the path and query of a request may be; longer ones get 414.
	// The query is read before the caller is known. Empty: 16 KiB.
	URLBytes int
	// Answers bound what large answers cost.
	Answers AnswerLimits
	// HeaderTime is how long a TLS handshake may take, and then the header of an HTTP/1.1
	// request. An HTTP/2 connection from which nothing comes for three times as long is
	// asked whether it lives, and closed if nothing comes in this time. Empty: 10 s.
	HeaderTime time.Duration
	// BodyTime is how long, in all, the server waits for a request's body, and a second
	// more for each 16 KiB of it that came; at most 60 s. What comes more slowly gets 408
	// (with HTTP/1.1 also 504, or no answer), and the connection of HTTP/1.1 ends. Time in
	// which the server does not read does not count, nor do requests without an end, such
	// as those for proxies. Empty: 10 s.
	BodyTime time.Duration
	// Addresses bound what the clients of one address take.
	Addresses AddressLimits
	// CertificateChain is how many certificates a client may present: its own and those
	// that lead to an authority. Longer chains end the TLS handshake, and so do those with
	// more than some 8 KiB for each. Empty: 10.
	CertificateChain int
	// CertificateKeyBits is the size in bits of the largest RSA key that these
	// certificates may have: verifying with a key twice as large costs four times as
	// much. Larger ones end the TLS handshake. Empty: 4096. Above 8192 Go refuses them.
	CertificateKeyBits int
	// HistoryBytes is how much the watch caches of all planes may keep of the past
	// together: objects that were replaced or deleted, as they are in memory. The oldest
	// of the resource with the most is dropped first. A watch from before what is kept
	// gets 410, and its client lists again. Empty: 24 MiB.
	HistoryBytes int
	// Bodies bound what the body of a request holds.
	Bodies BodyLimits
	// LargeRequests is how many requests with bodies or objects of more than 64 KiB, or
	// with large answers, compute at the same time; the others wait, and each user has
	// as many turns as the next one. Small requests find a processor meanwhile. Waiting
	// for the storage, for webhooks or for the client is not counted. As many TLS
	// handshakes compute at the same time, and each address has as many as the next one.
	// Empty: half of the processors that Go uses, at least one.
	LargeRequests int
}

// BodyLimits bound what the body of a request, and an object, hold. What is above a
// bound gets 413. Bodies for aggregated servers have the same bounds. Decoding,
// managed fields and validation cost time and memory by these numbers, some by their
// square. An empty field has the default that it names, [Unlimited] is no limit.
type BodyLimits struct {
	// Depth is how deep objects and arrays may nest. Schemas of CRDs nest the deepest:
	// those of large projects up to 40 levels. Empty: 128.
	Depth int
	// Values is how many members of objects and items of arrays there may be, all
	// together. An object of 1.5 MB has 50,000 of 30 bytes each. Empty: 50,000.
	Values int
	// Members is how many members one object, or items one array, may have. Empty:
	// 10,000.
	Members int
	// Metadata is how many labels, annotations, finalizers, owner references or
	// managers of fields an object may have, of each. Empty: 1,000.
	Metadata int
	// Operations is how many operations a JSON patch may have. Empty: 2,000.
	Operations int
}

// withDefaults has a value in every field.
func (l BodyLimits) withDefaults() BodyLimits {
	l.Depth = cmp.Or(l.Depth, 128)
	l.Values = cmp.Or(l.Values, 50_000)
	l.Members = cmp.Or(l.Members, 10_000)
	l.Metadata = cmp.Or(l.Metadata, 1_000)
	l.Operations = cmp.Or(l.Operations, 2_000)
	return l
}

// withDefaults has a value in every field.
func (l Limits) withDefaults() Limits {
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 64<<10)
	l.URLBytes = cmp.Or(l.URLBytes, 16<<10)
	l.Answers = l.Answers.withDefaults()
	l.HeaderTime = cmp.Or(l.HeaderTime, 10*time.Second)
	l.BodyTime = cmp.Or(l.BodyTime, 10*time.Second)
	l.Addresses = l.Addresses.withDefaults()
	l.CertificateChain = cmp.Or(l.CertificateChain, 10)
	l.CertificateKeyBits = cmp.Or(l.CertificateKeyBits, 4096)
	l.HistoryBytes = cmp.Or(l.HistoryBytes, 24<<20)
	l.Bodies = l.Bodies.withDefaults()
	l.LargeRequests = cmp.Or(l.LargeRequests, max(goruntime.GOMAXPROCS(0)/2, 1))
	return l
}

// check refuses values without a meaning.
func (l Limits) check() []error {
	errs := l.Answers.check()
	for _, f := range []struct {
		name  string
		value int
	}{
		{"HeaderBytes", l.HeaderBytes},
		{"URLBytes", l.URLBytes},
		{"Answers.Bytes", l.Answers.Bytes},
		{"Answers.BytesPerUser", l.Answers.BytesPerUser},
		{"CertificateChain", l.CertificateChain},
		{"CertificateKeyBits", l.CertificateKeyBits},
		{"HistoryBytes", l.HistoryBytes},
		{"Bodies.Depth", l.Bodies.Depth},
		{"Bodies.Values", l.Bodies.Values},
		{"Bodies.Members", l.Bodies.Members},
		{"Bodies.Metadata", l.Bodies.Metadata},
		{"Bodies.Operations", l.Bodies.Operations},
		{"LargeRequests", l.LargeRequests},
	} {
		if f.value < Unlimited {
			errs = append(errs, fmt.Errorf("limits: %s is %d: want a number above 0, 0 for the default, or Unlimited", f.name, f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"HeaderTime", l.HeaderTime},
		{"BodyTime", l.BodyTime},
	} {
		if f.value < Unlimited {
			errs = append(errs, fmt.Errorf("limits: %s is %v: want a duration above 0, 0 for the default, or Unlimited", f.name, f.value))
		}
	}
	return append(errs, l.Addresses.check()...)
}

// newTurns returns nil when nothing is limited.
func newTurns(n int) *turns.Line {
	if n == Unlimited {
		return nil
	}
	return turns.New(n)
}

// withURLLimit refuses long URLs before they are parsed.
func withURLLimit(h http.Handler, limit int, codecs runtime.NegotiatedSerializer) http.Handler {
	if limit == Unlimited {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.URL.Path) + len(r.URL.RawQuery); n > limit && !loopback.From(r.Context()) {
			responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusRequestURITooLong, Reason: metav1.StatusReasonUnknown,
				Message: fmt.Sprintf("the URL has %d bytes, the limit is %d: send fewer or shorter selectors", n, limit),
			}}, codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
