package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// atOnce is how many clusters are asked at once, and patience how long one of them has.
const atOnce, patience = 32, 5 * time.Second

// health is a controller that asks each cluster for its version, without credentials, every so often,
// and writes what it found into the status.
type health time.Duration

// Install declares the controller.
func (h health) Install(p *controlplane.Plan) error {
	p.Work(controlplane.Work{Name: "health", Elected: true, Run: func(ctx context.Context, plane *controlplane.Plane) error {
		c, err := newClient(plane.Config())
		if err != nil {
			return err
		}
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			var list v1alpha1.ClusterList
			if err := c.List(ctx, &list); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "clusters are not asked: they cannot be listed")
			}
			workqueue.ParallelizeUntil(ctx, atOnce, len(list.Items), func(i int) {
				if see(ctx, &list.Items[i]) && ctx.Err() == nil {
					_ = c.Status().Update(ctx, &list.Items[i]) // one that has changed or gone meanwhile has its next turn
				}
			})
		}, time.Duration(h))
		return nil
	}})
	return nil
}

// see asks a cluster, and tells whether its status changed.
func see(ctx context.Context, c *v1alpha1.Cluster) bool {
	was, is, now := c.Condition(v1alpha1.ClusterOK), c.Condition(v1alpha1.ClusterOK), metav1.Now()
	if server := c.ServerFor(netip.Addr{}); server == "" {
		is.Status, is.Reason, is.Message = metav1.ConditionUnknown, "NoServer", "spec.kubernetesApiEndpoints has no server"
	} else if found, err := ask(ctx, server, c.Spec.KubernetesAPIEndpoints.CABundle); err != nil {
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, "Unreachable", err.Error()
	} else {
		is.Status, is.Reason, is.Message, is.LastHeartbeatTime = metav1.ConditionTrue, "Answers", "", now
		c.Status.Version = cmp.Or(found, c.Status.Version)
	}
	if is.Status != was.Status {
		is.LastTransitionTime = now
	}
	c.SetCondition(is)
	return is != was
}

// ask asks an API server for its version. That it does not tell everybody is an answer as well.
func ask(ctx context.Context, server string, ca []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		trust.RootCAs = x509.NewCertPool()
		trust.RootCAs.AppendCertsFromPEM(ca)
	}
	client := http.Client{
		Transport:     &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/version", http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "", nil
	case http.StatusOK:
		var v version.Info
		err := json.NewDecoder(http.MaxBytesReader(nil, answer.Body, 1<<16)).Decode(&v)
		return v.GitVersion, err
	}
	return "", fmt.Errorf("%s/version: %s", server, answer.Status)
}
