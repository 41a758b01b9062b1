package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/stored"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// mostFindings is how many findings of a kind a [Survey] has.
const mostFindings = 100

// Survey says how what is stored is, beside what an [Info] counts.
type Survey struct {
	Info Info `json:"info"`
	// Undecodable are the keys of objects that cannot be read, each with the cause. No server can list their
	// resource.
	Undecodable Findings `json:"undecodable"`
	// Unread are those that were not looked into, as they are encrypted and there was no key.
	Unread int64 `json:"unread"`
	// WithoutNamespace are objects in a namespace that is not there, and WithoutOwner those whose owners
	// are all gone: a garbage collector deletes them. WithoutDefinition are custom resources of which no
	// definition is stored: nobody sees them, unless a program serves them itself.
	WithoutNamespace  Findings `json:"withoutNamespace"`
	WithoutOwner      Findings `json:"withoutOwner"`
	WithoutDefinition Findings `json:"withoutDefinition"`
	// Versions are how many objects of each resource are stored in each version, "v1alpha1".
	Versions map[string]map[string]int64 `json:"versions"`
}

// Findings are the first hundred of some, and how many there are.
type Findings struct {
	Count int64    `json:"count"`
	First []string `json:"first,omitempty"`
}

func (f *Findings) add(text string) {
	if f.Count++; f.Count <= mostFindings {
		f.First = append(f.First, text)
	}
}

// Sound tells whether nothing was found.
func (s *Survey) Sound() bool {
	return s.Undecodable.Count+s.WithoutNamespace.Count+s.WithoutOwner.Count+s.WithoutDefinition.Count == 0
}

// Check reads a backup, and looks into every object. With an encryption configuration it decrypts what is
// encrypted; without one it leaves that out. It keeps some 200 bytes for each object in memory.
func Check(ctx context.Context, from io.Reader, encryptionConfigFile string) (Survey, error) {
	c := &checker{survey: Survey{Versions: map[string]map[string]int64{}}, planes: map[string]*plane{}}
	if encryptionConfigFile != "" {
		transformers, stop, err := encryption.Transformers(ctx, encryptionConfigFile)
		if err != nil {
			return c.survey, err
		}
		defer stop()
		c.transformers = transformers
	}
	info, err := check(ctx, from, isWhole, func(info *Info, e transfer.Entry) error { return c.look(ctx, info, e) })
	c.survey.Info = info
	if err == nil {
		c.finish()
	}
	return c.survey, err
}

// checker looks into objects.
type checker struct {
	survey       Survey
	transformers value.ResourceTransformers // nil: nothing is decrypted
	planes       map[string]*plane
}

// plane is what is known of the objects of a plane.
type plane struct {
	uids        map[types.UID]struct{}
	namespaces  map[string]struct{}
	definitions map[schema.GroupResource]struct{}
	// in are the first objects of a namespace, owned those with owners, and custom the first ones of
	// resources that may need a definition; by key.
	in     map[string]*Findings
	owned  map[string][]types.UID
	custom map[schema.GroupResource]*Findings
	// unread are resources of which objects were not read: these may be what is missing.
	unread map[schema.GroupResource]bool
}

func (c *checker) plane(name string) *plane {
	p, ok := c.planes[name]
	if !ok {
		p = &plane{
			uids: map[types.UID]struct{}{}, namespaces: map[string]struct{}{}, definitions: map[schema.GroupResource]struct{}{},
			in: map[string]*Findings{}, owned: map[string][]types.UID{}, custom: map[schema.GroupResource]*Findings{},
			unread: map[schema.GroupResource]bool{},
		}
		c.planes[name] = p
	}
	return p
}

// look looks into a stored value.
func (c *checker) look(ctx context.Context, info *Info, e transfer.Entry) error {
	if e.Key[0] == attached {
		return nil
	}
	name, place := keys.Space{Prefix: info.Prefix}.Place(string(e.Key))
	if place == "" {
		return nil
	}
	p := c.plane(name)
	plain := e.Value
	if encryptedBy(plain) != "" {
		if c.transformers == nil {
			c.survey.Unread++
			p.unread[keys.Resources(place)[0]] = true
			return nil
		}
		var err error
		if plain, err = c.decrypt(ctx, place, e); err != nil {
			c.survey.Undecodable.add(fmt.Sprintf("%s: %v", e.Key, err))
			p.unread[keys.Resources(place)[0]] = true
			return nil
		}
	}
	o, err := stored.Decode(plain)
	var resource schema.GroupResource
	if err == nil {
		resource, err = resourceOf(place, o)
	}
	if err != nil {
		c.survey.Undecodable.add(fmt.Sprintf("%s: %v", e.Key, err))
		p.unread[keys.Resources(place)[0]] = true
		return nil
	}
	c.object(p, resource, o, string(e.Key), plain)
	return nil
}

func (c *checker) decrypt(ctx context.Context, place string, e transfer.Entry) ([]byte, error) {
	var errs []error
	for _, r := range keys.Resources(place) {
		plain, _, err := c.transformers.TransformerForResource(r).TransformFromStorage(ctx, e.Value, value.DefaultContext(e.Key))
		if err == nil {
			return plain, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// resourceOf is the resource of an object in a place; an error if the object is of another one.
func resourceOf(place string, o *stored.Object) (schema.GroupResource, error) {
	resource, ok := keys.Resource(place, o.Metadata.Namespace, o.Metadata.Name)
	switch {
	case o.APIVersion == "" || o.Kind == "":
		return resource, errors.New("it has no apiVersion or no kind")
	case !ok:
		return resource, fmt.Errorf("it is of the name %q in namespace %q, which its key does not have",
			o.Metadata.Name, o.Metadata.Namespace)
	case o.Metadata.UID == "":
		return resource, errors.New("it has no UID")
	}
	return resource, nil
}

// object notes what an object is, and what it needs.
func (c *checker) object(p *plane, resource schema.GroupResource, o *stored.Object, key string, plain []byte) {
	p.uids[types.UID(o.Metadata.UID)] = struct{}{}
	gv, _ := schema.ParseGroupVersion(o.APIVersion) // of two parts, else its resource would not be known
	byVersion := c.survey.Versions[resource.String()]
	if byVersion == nil {
		byVersion = map[string]int64{}
		c.survey.Versions[resource.String()] = byVersion
	}
	byVersion[gv.Version]++
	switch resource {
	case namespaces():
		p.namespaces[o.Metadata.Name] = struct{}{}
	case definitions():
		var d struct {
			Spec struct {
				Group string `json:"group"`
				Names struct {
					Plural string `json:"plural"`
				} `json:"names"`
			} `json:"spec"`
		}
		if json.Unmarshal(plain, &d) == nil { // definitions are stored as JSON
			p.definitions[schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}] = struct{}{}
		}
	}
	if n := o.Metadata.Namespace; n != "" {
		first(p.in, n).add(key)
	}
	if o.Kind != "" && mayBeCustom(resource.Group) {
		first(p.custom, resource).add(key)
	}
	for _, owner := range o.Metadata.OwnerReferences {
		p.owned[key] = append(p.owned[key], owner.UID)
	}
}

func namespaces() schema.GroupResource { return schema.GroupResource{Resource: "namespaces"} }

func definitions() schema.GroupResource {
	return schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
}

// mayBeCustom tells whether a group may be that of a definition: those of Kubernetes end with k8s.io, or have
// no dot.
func mayBeCustom(group string) bool {
	return strings.Contains(group, ".") && !strings.HasSuffix(group, "k8s.io")
}

func first[K comparable](of map[K]*Findings, key K) *Findings {
	f, ok := of[key]
	if !ok {
		f = &Findings{}
		of[key] = f
	}
	return f
}

// finish finds what is missing.
func (c *checker) finish() {
	for _, name := range slices.Sorted(maps.Keys(c.planes)) {
		p := c.planes[name]
		for _, namespace := range slices.Sorted(maps.Keys(p.in)) {
			if _, ok := p.namespaces[namespace]; !ok && !p.unread[namespaces()] {
				merge(&c.survey.WithoutNamespace, p.in[namespace])
			}
		}
		for resource, found := range p.custom {
			if _, ok := p.definitions[resource]; !ok && !p.unread[definitions()] {
				merge(&c.survey.WithoutDefinition, found)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(p.owned)) {
			there := slices.ContainsFunc(p.owned[key], func(uid types.UID) bool { _, ok := p.uids[uid]; return ok })
			if !there && len(p.unread) == 0 {
				c.survey.WithoutOwner.add(key)
			}
		}
	}
	slices.Sort(c.survey.WithoutDefinition.First)
}

func merge(to, from *Findings) {
	to.Count += from.Count
	to.First = append(to.First, from.First[:min(len(from.First), mostFindings-len(to.First))]...)
}
