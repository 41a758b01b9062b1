package storageapi

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const (
	// shortestLife of a client certificate: an API server may be stopped for a night.
	shortestLife = 24 * time.Hour
	// overlap is how long former authorities stay beside the current ones: servers that are replaced one
	// by one show certificates of both.
	overlap = 30 * 24 * time.Hour
	// mostAuthorities is how many a ConfigMap has, unless there are more current ones.
	mostAuthorities = 16
	// authoritiesKey is the key of a ConfigMap that has them.
	authoritiesKey = "ca.crt"
)

// errTaken is an object at a destination that was not made for the EtcdStorage. It is never overwritten.
var errTaken = errors.New("destination is taken")

// owned reports whether an object was made for an EtcdStorage. One of the same name is another one.
func owned(o metav1.Object, s *v1alpha1.EtcdStorage) bool {
	return o.GetLabels()[v1alpha1.LabelEtcdStorage] == s.Name && o.GetAnnotations()[v1alpha1.AnnotationUID] == string(s.UID)
}

// metadata is that of a new object at a destination.
func metadata(d v1alpha1.Destination, s *v1alpha1.EtcdStorage) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   d.Namespace,
		Name:        d.Name,
		Labels:      map[string]string{v1alpha1.LabelEtcdStorage: s.Name},
		Annotations: map[string]string{v1alpha1.AnnotationUID: string(s.UID)},
	}
}

// clientSecret is the Secret that a storage's client certificate is written to, or nil if the old one,
// which may be nil, is right. It is due at a time, and sooner if the authority or the EtcdStorage changes.
// A Secret that was not made for s is errTaken.
func clientSecret(
	old *corev1.Secret, s *v1alpha1.EtcdStorage, a *authority, now time.Time,
) (want *corev1.Secret, due time.Time, err error) {
	at := s.Spec.ClientCertificate.Secret
	want = &corev1.Secret{ObjectMeta: metadata(at, s), Type: corev1.SecretTypeTLS}
	id, rotateAfter := tenantID{s.Name, string(s.UID)}, defaultRotateAfter
	if r := s.Spec.RotateAfter; r != nil {
		rotateAfter = r.Duration
	}
	if old != nil {
		switch {
		case !owned(old, s):
			return nil, time.Time{}, fmt.Errorf("%w: secret %s/%s was not made for etcdstorage %s: delete the secret, or move it away",
				errTaken, at.Namespace, at.Name, s.Name)
		case old.Type != corev1.SecretTypeTLS:
			return nil, time.Time{}, fmt.Errorf("%w: secret %s/%s has type %s, not %s: delete it, and it is made again",
				errTaken, at.Namespace, at.Name, old.Type, corev1.SecretTypeTLS)
		}
		if due = a.due(old.Data, id, rotateAfter, now); now.Before(due) {
			return nil, due, nil
		}
		want = old.DeepCopy()
	}
	cert, key, err := a.sign(id, max(3*rotateAfter, shortestLife), now)
	if err != nil {
		return nil, time.Time{}, err
	}
	if want.Data == nil {
		want.Data = map[string][]byte{}
	}
	want.Data[corev1.TLSCertKey], want.Data[corev1.TLSPrivateKeyKey] = cert, key
	return want, a.due(want.Data, id, rotateAfter, now), nil
}

// due is when the certificate in the data of a Secret is to be replaced: at the age of rotateAfter. It is the
// zero time if it is not the tenant's, not valid, or not of the authority.
func (a *authority) due(data map[string][]byte, id tenantID, rotateAfter time.Duration, now time.Time) time.Time {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return time.Time{}
	}
	if got, err := identify([]*x509.Certificate{cert}, []*x509.Certificate{a.cert}, now); err != nil || got != id {
		return time.Time{}
	}
	signed, end := cert.NotBefore.Add(backdate), cert.NotAfter
	// One that was signed when rotateAfter was less is replaced well before its end. One that ends with the
	// authority cannot be replaced by a better one.
	if end.Before(a.cert.NotAfter) {
		end = end.Add(-end.Sub(signed) / 3)
	}
	return earlier(signed.Add(rotateAfter), end)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// former is an authority that is no longer current.
type former struct {
	cert  *x509.Certificate
	sum   string // its fingerprint
	until time.Time
}

// authorityConfigMap is the ConfigMap with the authorities of the endpoint's serving certificate, the current
// ones in PEM, or nil if the old one, which may be nil, is right. It is due when the first of the former
// authorities leaves, and never (the zero time) without any. A ConfigMap that was not made for s is errTaken.
func authorityConfigMap(
	old *corev1.ConfigMap, s *v1alpha1.EtcdStorage, current []byte, now time.Time,
) (want *corev1.ConfigMap, due time.Time, err error) {
	at := s.Spec.Authority.ConfigMap
	certs, err := certutil.ParseCertsPEM(current)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("authorities of the serving certificate: %w", err)
	}
	want = &corev1.ConfigMap{ObjectMeta: metadata(at, s)}
	if old != nil {
		if !owned(old, s) {
			return nil, time.Time{}, fmt.Errorf("%w: configmap %s/%s was not made for etcdstorage %s: delete it, or move it away",
				errTaken, at.Namespace, at.Name, s.Name)
		}
		want = old.DeepCopy()
	}
	notes, kept := map[string]string{}, []*x509.Certificate{}
	for _, cert := range certs {
		if sum := fingerprint(cert); !has(notes, sum) {
			notes[sum] = ""
			kept = append(kept, cert)
		}
	}
	for _, f := range formers(want, notes, now) {
		if len(kept) >= mostAuthorities {
			break
		}
		notes[f.sum] = f.until.Format(time.RFC3339)
		kept = append(kept, f.cert)
		due = f.until // they are in the order of their ends, the last first
	}
	if err := fill(want, kept, notes); err != nil {
		return nil, time.Time{}, err
	}
	if old != nil && equality.Semantic.DeepEqual(old, want) {
		return nil, due, nil
	}
	return want, due, nil
}

func has(notes map[string]string, sum string) bool {
	_, ok := notes[sum]
	return ok
}

// fingerprint is the SHA-256 of a certificate in hexadecimal digits.
func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// formers are the authorities of a ConfigMap that are not current any more and stay for now, those that stay
// longest first. What was not written there by this server does not stay.
func formers(m *corev1.ConfigMap, current map[string]string, now time.Time) []former {
	var noted map[string]string
	if json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationAuthorities]), &noted) != nil {
		return nil
	}
	certs, _ := certutil.ParseCertsPEM([]byte(m.Data[authoritiesKey]))
	last := now.Add(overlap).UTC().Truncate(time.Second)
	var all []former
	for _, cert := range certs {
		f := former{cert: cert, sum: fingerprint(cert), until: last}
		note, ok := noted[f.sum]
		if !ok || has(current, f.sum) || slices.ContainsFunc(all, func(other former) bool { return other.sum == f.sum }) {
			continue
		}
		if t, err := time.Parse(time.RFC3339, note); err == nil {
			f.until = earlier(t.UTC(), last)
		}
		if f.until = earlier(f.until, cert.NotAfter.UTC()); now.Before(f.until) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b former) int {
		return cmp.Or(b.until.Compare(a.until), cmp.Compare(a.sum, b.sum))
	})
	return all
}

// fill writes authorities into a ConfigMap.
func fill(m *corev1.ConfigMap, certs []*x509.Certificate, notes map[string]string) error {
	content, err := certutil.EncodeCertificates(certs...)
	if err != nil {
		return fmt.Errorf("encode the authorities of the serving certificate: %w", err)
	}
	noted, err := json.Marshal(notes)
	if err != nil {
		return err
	}
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	m.Data[authoritiesKey] = string(content)
	delete(m.BinaryData, authoritiesKey) // no key may be in both
	m.Annotations[v1alpha1.AnnotationAuthorities] = string(noted)
	return nil
}
