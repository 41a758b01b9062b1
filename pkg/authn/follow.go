package authn

import (
	"bytes"
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// followEvery is how soon a change of a file is noticed. Files are read, not
// watched: they are small, and a watch misses those that are mounted, linked or
// replaced, which is how tokens and certificates come to be in containers.
const followEvery = time.Second

// retryEvery is how soon what could not be used is tried again although the
// file has not changed: what else it depends on may have.
const retryEvery = 10 * time.Second

// during declares work that lasts as long as a plane, under a name that no other
// has: begin runs when the plane
// starts, and the plane is ready after it; then run, if it is not nil, until the
// context ends. Both get the context of the plane's life.
func during(p *controlplane.Plan, name string, begin func(context.Context) error, run func(context.Context)) {
	begun := make(chan error, 1)
	p.Background(name, func(ctx context.Context, _ *controlplane.Plane) error {
		err := begin(ctx)
		begun <- err
		if err == nil && run != nil {
			run(ctx)
		}
		return nil // Prepare below tells the error
	})
	p.Prepare(name, func(ctx context.Context, _ *controlplane.Plane) error {
		select {
		case err := <-begun:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// source is a file that is read when a plane starts and again when it changes.
type source struct {
	// what the file is, in errors: "token file".
	what, file string
	// read returns the content, or why it must not be used.
	read func(file string) ([]byte, error)
	// use puts content into effect, or says why it does not; the context is that
	// of the plane's life.
	use func(ctx context.Context, content []byte) error
}

// name is what errors call the file. Parts of a kind differ in it.
func (s source) name() string { return s.what + " " + s.file }

func (s source) install(p *controlplane.Plan) {
	f := &following{source: s}
	during(p, s.name(), f.begin, f.run)
}

// following is a source in a running plane; one goroutine has it.
type following struct {
	source
	used, refused []byte    // content in effect, and what could not be
	again         time.Time // when to try what was refused
	told          string    // the error that was logged
}

// begin puts the first content into effect.
func (f *following) begin(ctx context.Context) error {
	content, err := f.read(f.file)
	if err == nil {
		f.used, err = content, f.use(ctx, content)
	}
	return err
}

// run follows the file until the context ends.
func (f *following) run(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f.look(ctx, now)
		}
	}
}

// look puts new content into effect. What cannot be is logged once, and changes nothing.
func (f *following) look(ctx context.Context, now time.Time) {
	content, err := f.read(f.file)
	if err != nil {
		f.tell(ctx, err)
		return
	}
	if bytes.Equal(content, f.used) {
		f.refused, f.told = nil, ""
		return
	}
	if bytes.Equal(content, f.refused) && now.Before(f.again) {
		return
	}
	if err := f.use(ctx, content); err != nil {
		f.refused, f.again = content, now.Add(retryEvery)
		f.tell(ctx, err)
		return
	}
	f.used, f.refused, f.told = content, nil, ""
	klog.FromContext(ctx).Info("Loaded a changed file", "what", f.what, "file", f.file)
}

// tell logs why the file is not used, unless it was the last thing told.
func (f *following) tell(ctx context.Context, err error) {
	if ctx.Err() == nil && err.Error() != f.told {
		f.told = err.Error()
		klog.FromContext(ctx).Error(err, "Kept what a file said before", "what", f.what, "file", f.file)
	}
}
