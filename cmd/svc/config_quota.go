package main

import (
	"fmt"
	"strconv"

	"partnerbilling/models"
)

// quota is the maximum number of things of one kind that an organisation may store, such as open
// rows. 0, written as "off" in the configuration, means no limit.
type quota int64

// maxQuota is the largest quota. No table can hold as many rows.
const maxQuota = 1_000_000_000_000

// UnmarshalText parses a number from 1 to maxQuota, or "off".
func (q *quota) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*q = 0
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 || n > maxQuota {
		return fmt.Errorf(`must be a number from 1 to %d, or "off"`, int64(maxQuota))
	}
	*q = quota(n)
	return nil
}

// String returns the quota as UnmarshalText reads it.
func (q quota) String() string {
	if q == 0 {
		return "off"
	}
	return strconv.FormatInt(int64(q), 10)
}

// quotas returns the configured quotas in the form of the Store.
func (c *Config) quotas() models.Quotas {
	return models.Quotas{
		OpenRows: int64(c.QuotaOpenRows), Events: int64(c.QuotaEvents), Invitations: int64(c.QuotaInvitations),
		Endpoints: int64(c.QuotaEndpoints),
	}
}
