package controlplane

import (
	"errors"
	"fmt"
	"strings"
)

// Part is one capability of a plane: a resource group, CRDs, an authenticator,
// an admission function. The zero value of a part works, but for fields whose
// documentation ends in "Required": Build names those that are empty. The other
// exported fields say what their empty value means.
//
// Install declares what the part brings by calling the methods of the plan. It does
// no I/O, starts nothing and keeps no state: it runs once per plane, and once more
// when a builder checks itself. A part reads files in the function that it gives to
// [Plan.Read], and everything else in its work. Build reports an error of Install
// together with everything else that is wrong.
type Part interface {
	Install(*Plan) error
}

// PartFunc makes a function a Part. Nil is an error of Build. Required.
type PartFunc func(*Plan) error

// Install calls the function.
func (f PartFunc) Install(p *Plan) error {
	if f == nil {
		return errNoFunc
	}
	return f(p)
}

var errNoFunc = errors.New("the function is nil: pass one")

// Parts bundles parts into one, installed in order. Each keeps its own name in errors.
type Parts []Part

// Install installs every part and returns the errors of all of them.
func (ps Parts) Install(p *Plan) error { return p.install(ps) }

// partName is what a part is called in errors: the name it gives itself with a
// PartName method, or its Go type.
func partName(p Part) string {
	if n, ok := p.(interface{ PartName() string }); ok {
		return n.PartName()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", p), "*")
}
