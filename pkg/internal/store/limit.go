package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxObject is how many bytes an object may have as it is stored, encrypted if it
// is: etcd's limit for a request (--max-request-bytes), on every storage. One that
// is larger already can be read, made smaller and deleted.
const maxObject = 3 << 19 // 1.5 MiB

// limited refuses to store objects that are too large.
type limited struct{ kubernetes.Interface }

// OptimisticPut implements kubernetes.Interface.
func (l limited) OptimisticPut(
	ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions,
) (kubernetes.PutResponse, error) {
	if len(value) > maxObject {
		why := fmt.Sprintf("it takes %d bytes in the storage, and %d are allowed", len(value), maxObject)
		return kubernetes.PutResponse{}, tooLarge(why)
	}
	r, err := l.Interface.OptimisticPut(ctx, key, value, expected, opts)
	if errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return r, tooLarge("etcd allows no request as large (--max-request-bytes)")
	}
	return r, err
}

func tooLarge(why string) error {
	return apierrors.NewRequestEntityTooLargeError("the object is too large: " + why)
}
