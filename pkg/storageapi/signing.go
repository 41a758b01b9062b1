package storageapi

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// authoritySecret, in kube-system of the server that has the destinations, has the authority of tenants' certificates.
	authoritySecret = "sailplane-etcd-storage-authority"
	// authorityLeft is how long before its end an authority gets a successor: longer than
	// what it has signed is valid.
	authorityLeft = 4 * longestRotateAfter
)

// signer returns the authority that signs, which is read or made when it is first needed.
func (c *controller) signer(ctx context.Context) (*authority, error) {
	c.signing.Lock()
	defer c.signing.Unlock()
	if c.authority == nil {
		a, err := c.ensureAuthority(ctx)
		if err != nil {
			return nil, fmt.Errorf("the authority of client certificates: %w", err)
		}
		c.authority = a
	}
	return c.authority, nil
}

// ensureAuthority returns the authority that signs now: that of the Secret, or a new one
// if there is none, or its end is near. All servers trust it, and those before it, when it
// returns.
func (c *controller) ensureAuthority(ctx context.Context) (*authority, error) {
	secrets := c.core.Secrets(metav1.NamespaceSystem)
	old, err := present(secrets.Get(ctx, authoritySecret, metav1.GetOptions{}))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if old != nil {
		a, err := parseAuthority(old.Data[corev1.TLSCertKey], old.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w: delete it, and all certificates are signed anew",
				metav1.NamespaceSystem, authoritySecret, err)
		}
		if now.Add(authorityLeft).Before(a.cert.NotAfter) {
			return a, c.publish(ctx, a, now)
		}
	}
	a, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	// Known before it signs anything: a certificate is good at all servers at once.
	if err := c.publish(ctx, a, now); err != nil {
		return nil, err
	}
	certificate, key, err := a.encode()
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: authoritySecret}, Type: corev1.SecretTypeTLS,
	}
	if old != nil {
		s = old.DeepCopy()
	}
	s.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	if old == nil {
		_, err = secrets.Create(ctx, s, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	return a, err
}

// publish has all servers trust an authority, beside those that have not ended.
func (c *controller) publish(ctx context.Context, a *authority, now time.Time) error {
	for {
		content, revision, err := c.shared.Get(ctx, sharedAuthorities)
		if err != nil {
			return err
		}
		all := encodeCertificate(a.cert.Raw)
		known, _ := certutil.ParseCertsPEM(content) // there are none at first
		for _, one := range known {
			if now.Before(one.NotAfter) && !bytes.Equal(one.Raw, a.cert.Raw) {
				all = append(all, encodeCertificate(one.Raw)...)
			}
		}
		if bytes.Equal(all, content) {
			return c.trusted.set(all)
		}
		written, err := c.shared.Put(ctx, sharedAuthorities, all, revision)
		if err != nil {
			return err
		}
		if written {
			return c.trusted.set(all)
		}
	}
}
