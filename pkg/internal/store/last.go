package store

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// Instead tells whether what the cache has must do for a request, as its source failed. It does
// for none of a certain version.
func (c *cached) Instead(ctx context.Context, last *source.Last, version, token string, err error) bool {
	anyDoes := (version == "" || version == "0") && token == ""
	return anyDoes && apierrors.IsServiceUnavailable(err) && c.cacher.Ready() && last.Answers(ctx, err)
}

// LastGet gets an object as the cache has it.
func (c *cached) LastGet(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	opts.ResourceVersion = "0"
	return c.cacher.Get(ctx, key, opts, out)
}

// LastList lists what the cache has, all in one page.
func (c *cached) LastList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	opts.ResourceVersion, opts.ResourceVersionMatch = "0", ""
	return c.cacher.GetList(ctx, key, opts, list)
}
