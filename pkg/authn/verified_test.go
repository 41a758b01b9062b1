package authn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
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
	// Certificates that are authorities themselves need no signature.
	cert := func(serial byte, until time.Time) *x509.Certificate {
		return &x509.Certificate{Raw: []byte{serial}, NotAfter: until}
	}
	first, short, odd := cert(1, begun.Add(time.Hour)), cert(2, begun.Add(time.Second)), cert(3, begun.Add(time.Hour))
	future := cert(4, begun.Add(time.Hour))
	future.NotBefore = begun.Add(2 * time.Second)
	v := remember(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		asked++
		if !known {
			return nil, false, errors.New("unknown")
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, true, nil
	}), []*x509.Certificate{first, short, odd, future})
	v.clock = clock
	request := func(cert *x509.Certificate) *http.Request {
		return &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
	}
	steps := []struct {
		reason string
		before func()
		cert   *x509.Certificate
		asked  int
		ok     bool
	}{
		{"the first request is verified", nil, first, 1, true},
		{"the next one on the connection is not", nil, first, 1, true},
		{"an equal certificate of another connection is", nil, cert(1, first.NotAfter), 2, true},
		{"after a minute it is verified again", func() { clock.Step(rememberedFor) }, first, 3, true},
		{"one that ends soon", func() { clock.SetTime(begun) }, short, 4, true},
		{"is not remembered beyond its end", func() { clock.SetTime(short.NotAfter); known = false }, short, 5, false},
		{"a refusal is remembered", nil, short, 5, false},
		{"for a minute", func() { clock.Step(rememberedFor) }, short, 6, false},
		{"one that is not valid yet", func() { clock.SetTime(begun) }, future, 7, false},
		{"is asked for when it is", func() { clock.SetTime(future.NotBefore); known = true }, future, 8, true},
		{"what no authority signed is not verified", nil, cert(5, first.NotAfter), 8, false},
	}
	for _, s := range steps {
		if s.before != nil {
			s.before()
		}
		_, ok, err := v.AuthenticateRequest(request(s.cert))
		if ok != s.ok || ok == (err != nil) || asked != s.asked {
			t.Errorf("%s: ok %v, %v, asked %d times; want %v, %d", s.reason, ok, err, asked, s.ok, s.asked)
		}
	}
	if _, ok, _ := v.AuthenticateRequest(&http.Request{}); !ok || asked != 9 {
		t.Error("a request without a certificate is passed on")
	}
}

// TestStrangersPushOutNobody: whoever is refused is remembered elsewhere.
func TestStrangersPushOutNobody(t *testing.T) {
	t.Parallel()
	asked := 0
	honest := &x509.Certificate{Raw: []byte{1}, NotAfter: time.Now().Add(time.Hour)}
	v := remember(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		asked++
		return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, true, nil
	}), []*x509.Certificate{honest})
	call := func(cert *x509.Certificate) {
		_, _, _ = v.AuthenticateRequest(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}})
	}
	call(honest)
	for range 2 * rememberedCertificates {
		call(&x509.Certificate{Raw: []byte{2}})
	}
	if call(honest); asked != 1 {
		t.Errorf("verified %d times, want once", asked)
	}
	if n := v.refused.Len(); n != rememberedCertificates {
		t.Errorf("%d strangers are remembered, want %d", n, rememberedCertificates)
	}
}

// TestVerifiedOnce: the requests that a connection begins with wait for one answer.
func TestVerifiedOnce(t *testing.T) {
	t.Parallel()
	var asked sync.WaitGroup
	asked.Add(1) // a second Done panics
	cert := &x509.Certificate{Raw: []byte{1}, NotAfter: time.Now().Add(time.Hour)}
	v := remember(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		asked.Done()
		return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, true, nil
	}), []*x509.Certificate{cert})
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if _, ok, err := v.AuthenticateRequest(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}); !ok || err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	all.Wait()
}
