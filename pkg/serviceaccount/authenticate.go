package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
)

// skew is how far the clocks of servers that share a storage may be apart.
const skew = time.Minute

// staleToken is the audit annotation of requests with a token that should have
// been replaced, as in Kubernetes.
const staleToken = "authentication.k8s.io/stale-token"

// AuthenticateToken implements authenticator.Token. Tokens of other issuers,
// and strings that are no such token, are left to others.
func (i *issuer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	t, ok := parse(token)
	if !ok || t.issuer() != i.Issuer {
		return nil, false, nil
	}
	now := i.now.Load()
	if now == nil {
		return nil, false, errors.New("service account token: the server is starting")
	}
	response, err := i.authenticate(ctx, now, t)
	if err != nil {
		return nil, false, fmt.Errorf("service account token: %w", err)
	}
	return response, true, nil
}

func (i *issuer) authenticate(ctx context.Context, now *running, t *parsed) (*authenticator.Response, error) {
	c, err := now.keys.verify(t)
	if err != nil {
		return nil, err
	}
	if err := c.check(time.Now()); err != nil {
		return nil, err
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = i.Audiences
	}
	common := authenticator.Audiences(c.Audiences).Intersect(wanted)
	if len(common) == 0 {
		return nil, fmt.Errorf("it is for %q, not for %q", c.Audiences, wanted)
	}
	if err := now.exist(ctx, c); err != nil {
		return nil, err
	}
	if after := c.Kubernetes.WarnAfter; after != 0 && time.Now().Unix() > after {
		audit.AddAuditAnnotation(ctx, staleToken, fmt.Sprintf("subject: %s, seconds after warning threshold: %d",
			c.Subject, time.Now().Unix()-after))
	}
	return &authenticator.Response{User: c.user(), Audiences: common}, nil
}

// check validates what the token says of itself.
func (c *claims) check(now time.Time) error {
	switch {
	case c.Expires == 0:
		return errors.New("it has no expiry")
	case now.Unix() >= c.Expires:
		return errors.New("it has expired")
	case now.Add(skew).Unix() < c.NotBefore, now.Add(skew).Unix() < c.IssuedAt:
		return errors.New("it is not valid yet")
	}
	k := c.Kubernetes
	if k.ServiceAccount.UID == "" || c.Subject != serviceaccount.MakeUsername(k.Namespace, k.ServiceAccount.Name) {
		return errors.New("its subject is not the service account that it names")
	}
	if _, _, err := serviceaccount.SplitUsername(c.Subject); err != nil {
		return fmt.Errorf("its subject is not a service account: %w", err)
	}
	return nil
}

// user is the user of the token.
func (c *claims) user() user.Info {
	k := c.Kubernetes
	who := serviceaccount.ServiceAccountInfo{Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: string(k.ServiceAccount.UID)}
	if c.ID != "" {
		who.CredentialID = jwt.CredentialIDForJTI(c.ID)
	}
	if k.Pod != nil {
		who.PodName, who.PodUID = k.Pod.Name, string(k.Pod.UID)
	}
	if k.Node != nil {
		who.NodeName, who.NodeUID = k.Node.Name, string(k.Node.UID)
	}
	return who.UserInfo()
}

// exist tells whether the account and the bound object still exist in the
// storage: a cache would let a token live on for a while.
func (r *running) exist(ctx context.Context, c *claims) error {
	k := c.Kubernetes
	read := func(resource, namespace string, ref reference) error {
		obj, err := r.metadata(ctx, schema.GroupResource{Resource: resource}, namespace, ref.Name)
		return same(strings.TrimSuffix(resource, "s"), ref, obj, err)
	}
	if err := read("serviceaccounts", k.Namespace, k.ServiceAccount); err != nil {
		return err
	}
	if k.Secret != nil {
		if err := read("secrets", k.Namespace, *k.Secret); err != nil {
			return err
		}
	}
	if k.Pod != nil {
		return read("pods", k.Namespace, *k.Pod) // the token is not bound to its node
	}
	if k.Node != nil {
		return read("nodes", "", *k.Node)
	}
	return nil
}

// same tells whether an object that was read is the one a token names. A Pod that
// is being deleted keeps its tokens until its grace period ends.
func same(what string, ref reference, obj metav1.Object, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %q is gone", what, ref.Name)
	case err != nil:
		return fmt.Errorf("read %s %q: %w", what, ref.Name, err)
	case obj.GetUID() != ref.UID:
		return fmt.Errorf("%s %q has another UID: it was deleted and created again", what, ref.Name)
	}
	if ends := obj.GetDeletionTimestamp(); ends != nil && !ends.After(time.Now()) {
		return fmt.Errorf("%s %q is being deleted", what, ref.Name)
	}
	return nil
}
