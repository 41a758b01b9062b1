package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// maxObject is the largest size of a stored object in bytes, after encryption:
// etcd's limit for a request (--max-request-bytes), on every storage. Larger
// objects that exist can be read, made smaller and deleted.
const maxObject = 3 << 19 // 1.5 MiB

// limited refuses to store objects that are too large, and bounds what lists read.
type limited struct {
	kubernetes.Interface
	sizes *sizes
}

// Get implements kubernetes.Interface. Whoever reads a large object waits for a turn
// before it is decoded.
func (l limited) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	r, err := l.Interface.Get(ctx, key, opts)
	if err == nil && r.KV != nil {
		turns.From(ctx).TakeFor(ctx, int64(len(r.KV.Value)))
	}
	return r, err
}

// OptimisticPut implements kubernetes.Interface.
func (l limited) OptimisticPut(
	ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions,
) (kubernetes.PutResponse, error) {
	if len(value) > maxObject {
		why := fmt.Sprintf("it takes %d bytes in the storage, and only %d are allowed", len(value), maxObject)
		return kubernetes.PutResponse{}, tooLarge(why)
	}
	resume := turns.From(ctx).Rest()
	r, err := l.Interface.OptimisticPut(ctx, key, value, expected, opts)
	resume(ctx)
	if errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return r, tooLarge("etcd does not allow such a large request (--max-request-bytes)")
	}
	return r, err
}

func tooLarge(why string) error {
	metrics.Refused(metrics.TooLarge)
	return apierrors.NewRequestEntityTooLargeError("the object is too large: " + why)
}

// retryAfter is how many seconds a client waits before it asks a storage again that
// may have recovered by then.
const retryAfter = 1

// reasonOf returns what is wrong with a storage, by the error of a request to it:
// nothing for the errors that API servers expect.
func reasonOf(err error) metrics.Reason {
	var code codes.Code
	text := err.Error()
	var answered rpctypes.EtcdError
	switch {
	case errors.As(err, &answered):
		code = answered.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return metrics.TooSlow
	default:
		code = grpcstatus.Code(err)
	}
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	switch code {
	case codes.ResourceExhausted:
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			return metrics.NoSpace
		case errors.Is(err, rpctypes.ErrTooManyRequests):
			return metrics.TooSlow
		case has("larger than max"):
			return metrics.TooLarge
		}
		return metrics.MakesRoom
	case codes.Unavailable, codes.DeadlineExceeded:
		switch {
		case has("no space left on device", "disk is full"):
			return metrics.NoSpace
		case has("x509:", "tls:", "authentication handshake failed"):
			return metrics.BadCertificate
		case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrLeaderChanged), errors.Is(err, rpctypes.ErrNotLeader):
			return metrics.NoLeader
		case code == codes.DeadlineExceeded, has("request timed out"):
			return metrics.TooSlow
		}
		return metrics.NoAnswer
	}
	return ""
}

// told turns an error of the storage into one that says what clients should do: try
// again after a while (503, 429), delete something (507), send less (413).
func told(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	reason := reasonOf(err)
	if reason == "" {
		return err
	}
	metrics.Refused(reason)
	s := metav1.Status{Status: metav1.StatusFailure, Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter}}
	switch reason {
	case metrics.TooLarge:
		return apierrors.NewRequestEntityTooLargeError("the object is too large for the storage: " + err.Error())
	case metrics.NoSpace:
		s.Code, s.Reason, s.Details = http.StatusInsufficientStorage, "InsufficientStorage", nil
		s.Message = "the storage is full: delete objects, or give it more room: " + err.Error()
	case metrics.MakesRoom:
		s.Code, s.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
		s.Message = "the storage is making room for new objects: try again: " + err.Error()
	case metrics.NoAnswer, metrics.NoLeader, metrics.BadCertificate, metrics.TooSlow:
		s.Code, s.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
		s.Message = "the storage does not answer (" + string(reason) + "): " + err.Error()
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// named gives an error of a write that API servers do not expect a reason: one without
// is of what a client sent, not of the server.
func named(err error) error {
	if err == nil {
		return nil
	}
	var known apierrors.APIStatus
	var expected *storage.StorageError
	var invalid storage.InvalidError
	var internal storage.InternalError
	switch {
	case errors.Is(err, storage.ErrResourceVersionSetOnCreate): // which the client did
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // nobody waits any more
		return err
	case errors.As(err, &known), errors.As(err, &expected), errors.As(err, &invalid), errors.As(err, &internal):
		return err
	}
	return internalError{apierrors.NewInternalError(err), err}
}

// internalError is one that keeps its cause.
type internalError struct {
	*apierrors.StatusError
	cause error
}

// Unwrap returns the cause.
func (e internalError) Unwrap() error { return e.cause }

// explaining is a store whose errors say what clients should do.
type explaining struct{ storage.Interface }

// Create implements storage.Interface.
func (t explaining) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return named(told(ctx, t.Interface.Create(ctx, key, obj, out, ttl)))
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are those of storage.Interface
func (t explaining) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return named(told(ctx, t.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)))
}

// Watch implements storage.Interface.
func (t explaining) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := t.Interface.Watch(ctx, key, opts)
	return w, told(ctx, err)
}

// Get implements storage.Interface.
func (t explaining) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return told(ctx, t.Interface.Get(ctx, key, opts, out))
}

// GetList implements storage.Interface.
func (t explaining) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	return told(ctx, t.Interface.GetList(ctx, key, opts, list))
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are those of storage.Interface
func (t explaining) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions,
	update storage.UpdateFunc, cached runtime.Object,
) error {
	var own error // of the update, which is the client's
	err := t.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions,
		func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
			updated, ttl, err := update(input, meta)
			own = err
			return updated, ttl, err
		}, cached)
	if own != nil && errors.Is(err, own) {
		return err
	}
	return named(told(ctx, err))
}

// GetCurrentResourceVersion implements storage.Interface.
func (t explaining) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	at, err := t.Interface.GetCurrentResourceVersion(ctx)
	return at, told(ctx, err)
}
