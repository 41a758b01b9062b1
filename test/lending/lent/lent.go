// Package lent asks the program in ../lender for EtcdStorages.
package lent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Storage is an EtcdStorage that is ready, with what its client needs: PEM files.
type Storage struct {
	Name, Endpoint              string
	Authority, Certificate, Key []byte
}

// TLS is how a client connects.
func (s Storage) TLS() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return nil, fmt.Errorf("EtcdStorage %q: %w", s.Name, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.Authority) {
		return nil, fmt.Errorf("EtcdStorage %q: found no authority in %q", s.Name, s.Authority)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// Lender is the URL of a running lender.
type Lender string

// Create makes an EtcdStorage whose data is in the storage of a name.
func (l Lender) Create(ctx context.Context, storage string) (s Storage, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(l)+"/"+storage, http.NoBody)
	if err != nil {
		return s, err
	}
	// A connection that is kept would look like a leak of the test.
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return s, err
	}
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("create an EtcdStorage on %q: %s: %s", storage, answer.Status, body)
	}
	return s, json.Unmarshal(body, &s)
}
