// Package projections tests views of custom resources, and of resources of other servers, as
// clients see them.
package projections
