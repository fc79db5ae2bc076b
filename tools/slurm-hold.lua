-- Job submit plugin for Slurm (job_submit.lua, JobSubmitPlugins=lua): every job for the partition that
-- `jige cluster run` manages is held when it comes, and only root or the Slurm user may release it, give it
-- nodes, or change what Jige wrote about it; one that names nodes is refused. Other partitions are left alone.
--
-- Copy it beside slurm.conf as job_submit.lua and set the name of the partition here.
local managed = { jige = true }

-- Slurm's marks for "not given".
local NO_VALUE = 4294967294
local operators = { [0] = true, [64030] = true }

local function is_managed(partition)
  if partition == nil then return managed["jige"] end
  for name in string.gmatch(partition, "[^,]+") do
    if managed[name] then return true end
  end
  return false
end

function slurm_job_submit(job, partitions, uid)
  local partition = job.partition
  if partition == nil then
    for name, part in pairs(partitions) do
      if part.flag_default ~= 0 then partition = name end
    end
  end
  if is_managed(partition) then
    if job.req_nodes ~= nil and job.req_nodes ~= "" then
      slurm.log_user("nodes in this partition are chosen by Jige; leave out --nodelist")
      return slurm.ERROR
    end
    job.priority = 0
    job.admin_comment = "jige hold"
  end
  return slurm.SUCCESS
end

local function given(value) return value ~= nil and value ~= NO_VALUE end

function slurm_job_modify(job, record, partitions, uid)
  if operators[uid] or not is_managed(record.partition) then return slurm.SUCCESS end
  if given(job.priority) then
    slurm.log_user("jobs of this partition are started by Jige; ask an administrator to release one")
    return slurm.ERROR
  end
  if job.req_nodes ~= nil or (job.begin_time ~= nil and job.begin_time ~= 0) then
    slurm.log_user("nodes and start times in this partition are chosen by Jige")
    return slurm.ERROR
  end
  if job.partition ~= nil then
    slurm.log_user("a job that waits for Jige cannot change its partition; cancel and submit it again")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
