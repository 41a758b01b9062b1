// Package bodies bounds what the body of a request holds, while it is read: how deep
// it nests, how many values it has, and how many of them are in one object. What
// decoders, managed fields and validation do with a body takes time and memory by
// these numbers, some of it by their square, and a body of 3 MiB has room for a
// million of each.
//
// JSON is looked at as it passes, without a copy. YAML, CBOR and protobuf are read
// whole first. Protobuf says nothing about what a field is, so it is looked at with
// the Go type of its kind.
package bodies

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unlimited as a field of [Limits] bounds nothing.
const Unlimited = -1

// Limits are the bounds of one body. Every field has a value, or is [Unlimited].
type Limits struct {
	// Depth is how deep objects and arrays may nest.
	Depth int
	// Values is how many members of objects and items of arrays there may be, all together.
	Values int
	// Members is how many members one object, or items one array, may have.
	Members int
	// Metadata is how many labels, annotations, finalizers, owner references or
	// managers of fields an object may have, of each.
	Metadata int
	// Operations is how many operations a JSON patch may have.
	Operations int
}

// tooMuch is the error of a bound: 413, as for a body that is too long.
func tooMuch(what string, limit int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s, the limit is %d", what, limit))
}

// malformed is the error of a body that is not what its content type says.
func malformed(why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: why,
	}}
}

// above tells whether a number is above a limit.
func above(n, limit int) bool { return limit != Unlimited && n > limit }

// frame is an object or array that has begun.
type frame struct {
	// count is how many members or items it has so far.
	count int
	// most is how many it may have; name is what errors call it.
	most int
	name string
	kind kind
}

// kind is what a frame is.
type kind uint8

const (
	list kind = iota
	object
	// root is the outermost object, meta its metadata: their members have names that matter.
	root
	meta
	// operations is the array of a JSON patch.
	operations
)

// count is what was found in a body so far. It is the same for all formats. It has no
// pointer to itself, so that a short one needs no memory of its own.
type count struct {
	limits Limits
	values int
	depth  int
	patch  bool
	outer  [8]frame // as many as most bodies have
	inner  []frame
}

func (c *count) start(l Limits, patch bool) { *c = count{limits: l, patch: patch} }

// current is the innermost object or array, nil outside of all.
func (c *count) current() *frame {
	switch at := c.depth - 1; {
	case at < 0:
		return nil
	case at < len(c.outer):
		return &c.outer[at]
	default:
		return &c.inner[at-len(c.outer)]
	}
}

// open begins an object or array that is the value of a member with a name.
func (c *count) open(k kind, name []byte) error {
	if above(c.depth+1, c.limits.Depth) {
		return tooMuch("the body nests deeper than is allowed", c.limits.Depth)
	}
	around := c.current()
	c.depth++
	f := frame{kind: k, most: c.limits.Members}
	switch {
	case c.depth == 1 && k == object:
		f.kind = root
	case c.depth == 1 && c.patch:
		f.kind, f.most, f.name = operations, c.limits.Operations, "operations of the patch"
	case c.depth == 2 && around.kind == root && k == object && string(name) == "metadata":
		f.kind = meta
	case c.depth == 3 && around.kind == meta:
		if s := inMetadata(name); s != "" {
			f.most, f.name = c.limits.Metadata, s
		}
	}
	if c.depth > len(c.outer) {
		c.inner = append(c.inner[:c.depth-len(c.outer)-1], f)
	} else {
		c.outer[c.depth-1] = f
	}
	return nil
}

// inMetadata is what errors call a part of the metadata that has a bound of its own.
func inMetadata(name []byte) string {
	switch string(name) {
	case "finalizers":
		return "metadata.finalizers"
	case "labels":
		return "metadata.labels"
	case "annotations":
		return "metadata.annotations"
	case "ownerReferences":
		return "metadata.ownerReferences"
	case "managedFields":
		return "metadata.managedFields"
	}
	return ""
}

// end ends the innermost object or array.
func (c *count) end() {
	c.depth = max(c.depth-1, 0)
}

// add counts a member or an item of the innermost object or array.
func (c *count) add() error {
	c.values++
	if above(c.values, c.limits.Values) {
		return tooMuch("the body has more values than are allowed", c.limits.Values)
	}
	if f := c.current(); f != nil {
		f.count++
		if above(f.count, f.most) {
			return c.full(f)
		}
	}
	return nil
}

func (c *count) full(f *frame) error {
	switch {
	case f.name != "":
		return tooMuch("there are more "+f.name+" than are allowed", f.most)
	case f.kind == list:
		return tooMuch("an array has more items than are allowed", f.most)
	}
	return tooMuch("an object has more members than are allowed", f.most)
}
