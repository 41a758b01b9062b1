package authn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	testclock "k8s.io/utils/clock/testing"
)

func TestVerifiedCertificatesAreRemembered(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	clock := testclock.NewFakeClock(begun)
	asked, known := 0, true
	v := remember(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		asked++
		if !known {
			return nil, false, errors.New("unknown authority")
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, true, nil
	})).(*verified)
	v.clock = clock
	request := func(cert *x509.Certificate) *http.Request {
		return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
	}
	first := &x509.Certificate{NotAfter: begun.Add(time.Hour)}
	short := &x509.Certificate{NotAfter: begun.Add(time.Second)}
	steps := []struct {
		reason string
		before func()
		cert   *x509.Certificate
		asked  int
		ok     bool
	}{
		{"the first request is verified", nil, first, 1, true},
		{"the next one on the connection is not", nil, first, 1, true},
		{"an equal certificate of another connection is", nil, &x509.Certificate{NotAfter: first.NotAfter}, 2, true},
		{"after a minute it is verified again", func() { clock.Step(rememberedFor) }, first, 3, true},
		{"one that ends soon", func() { clock.SetTime(begun) }, short, 4, true},
		{"is not remembered beyond its end", func() { clock.SetTime(short.NotAfter); known = false }, short, 5, false},
		{"a refusal is not remembered", nil, short, 6, false},
	}
	for _, s := range steps {
		if s.before != nil {
			s.before()
		}
		_, ok, _ := v.AuthenticateRequest(request(s.cert))
		if ok != s.ok || asked != s.asked {
			t.Errorf("%s: ok %v, asked %d times; want %v, %d", s.reason, ok, asked, s.ok, s.asked)
		}
	}
	if _, _, err := v.AuthenticateRequest(&http.Request{}); err == nil || asked != 7 {
		t.Error("a request without a certificate is passed on")
	}
}
