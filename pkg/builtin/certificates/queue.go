package certificates

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// The pause before a request that failed is tried again, at first and at most.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Minute
)

// requestQueue receives and handles the requests of one signer.
type requestQueue struct {
	signer Signer
	client certificatesclient.CertificatesV1Interface
	queue  *retry.Queue[string]
}

// run watches the requests of the signer, and no others, until the context ends.
func (d *requestQueue) run(ctx context.Context) {
	look := func(obj any) {
		if r, ok := obj.(*csr); ok && (signable(r) || d.signer.Approve != nil && approvable(r)) {
			d.queue.Add(r.Name)
		}
	}
	requests, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(d.client.RESTClient(), "certificatesigningrequests", metav1.NamespaceNone,
			fields.OneTermEqualSelector("spec.signerName", d.signer.Name)),
		ObjectType: &csr{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    look,
			UpdateFunc: func(_, obj any) { look(obj) },
		},
	})
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { informer.RunWithContext(ctx) })
	d.queue.Run(ctx, 1, func(ctx context.Context, name string) error {
		found, _, _ := requests.GetByKey(name) // the error is always nil
		if r, ok := found.(*csr); ok {
			return retry.UnlessGone(d.handle(ctx, r.DeepCopy()))
		}
		return nil
	}, func(ctx context.Context, name string, err error) {
		klog.FromContext(ctx).Error(err, "Cannot issue a certificate yet; will retry",
			"certificateSigningRequest", name, "signer", d.signer.Name)
	})
}

// approvable tells whether the request is undecided.
func approvable(r *csr) bool { return open(r) && !has(r, certificatesv1.CertificateApproved) }

// signable tells whether the request waits for its certificate.
func signable(r *csr) bool { return open(r) && has(r, certificatesv1.CertificateApproved) }

// open tells whether the request may still get a certificate.
func open(r *csr) bool {
	return !has(r, certificatesv1.CertificateDenied) && !has(r, certificatesv1.CertificateFailed) && len(r.Status.Certificate) == 0
}

// handle approves a request or signs it; its write queues the request again.
func (d *requestQueue) handle(ctx context.Context, r *csr) error {
	switch {
	case approvable(r) && d.signer.Approve != nil && d.signer.Approve(r.DeepCopy()):
		r.Status.Conditions = append(r.Status.Conditions, condition(certificatesv1.CertificateApproved,
			"AutoApproved", fmt.Sprintf("Approved by the signer %s.", d.signer.Name)))
		_, err := d.client.CertificateSigningRequests().UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
		return err
	case !signable(r):
		return nil
	}
	issued, err := d.signer.issue(r, time.Now())
	var refused requestError
	switch {
	case errors.As(err, &refused):
		r.Status.Conditions = append(r.Status.Conditions, condition(certificatesv1.CertificateFailed,
			"SignerValidationFailure", refused.Error()))
	case err != nil:
		return err
	default:
		r.Status.Certificate = issued
	}
	_, err = d.client.CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}

// condition returns a condition that is true; the server sets its times.
func condition(t certificatesv1.RequestConditionType, reason, message string) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	}
}
